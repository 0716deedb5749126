"""Holds answers of the simulated provider in Anthropic's `/messages`, byte for byte. Recorded, never edited."""

# Answered by the model `reasoning+cached:20+cache-write:7:3`.
WHOLE = (
    b'{"id":"msg_sim_4ebbcee5a3a60097e5e79144","type":"message","role":"assistant","model":"reasoning+cached:20+cac'
    b'he-write:7:3","usage":{"input_tokens":5,"cache_creation_input_tokens":10,"cache_read_input_tokens":20,"cache_'
    b'creation":{"ephemeral_5m_input_tokens":7,"ephemeral_1h_input_tokens":3},"output_tokens":10,"service_tier":"st'
    b'andard"},"content":[{"type":"thinking","thinking":"First I read the question.","signature":"sig-sim-e85cc402b'
    b'f15c536bde1708bccd7df51"},{"type":"text","text":"O\xc3\xb9 est l\xe2\x80\x99\xc3\xa9t\xc3\xa9 ? '
    b'\xf0\x9f\x8c\x9e"}],"stop_reason":"end_turn","stop_sequence":null}'
)
# Streamed by the model `reasoning+cached:20+cache-write:7:3`.
STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_5683367ecaa848fee224d31c","type":"message","role":"ass'
    b'istant","model":"reasoning+cached:20+cache-write:7:3","usage":{"input_tokens":5,"cache_creation_input_tokens"'
    b':10,"cache_read_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":7,"ephemeral_1h_input_tokens":'
    b'3},"output_tokens":1,"service_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n'
    b"\nevent: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""'
    b"}}\n\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"First"}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" I"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" read"}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" the"}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" question."}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig-sim-e85cc402'
    b'bf15c536bde1708bccd7df51"}}\n\nevent: content_block_stop\n'
    b'data: {"type":"content_block_stop","index":0}\n\nevent: content_block_start\n'
    b'data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9"}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" ?"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e"}}\n'
    b'\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\nevent: message_delta\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens"'
    b':null,"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"output_tokens":10}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
# Answered by the model `tools`.
TOOLS_WHOLE = (
    b'{"id":"msg_sim_44e4590946c5e694dde4b667","type":"message","role":"assistant","model":"tools","usage":{"input_'
    b'tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_t'
    b'okens":0,"ephemeral_1h_input_tokens":0},"output_tokens":4,"service_tier":"standard"},"content":[{"type":"tool'
    b'_use","id":"toolu_sim_136f674a942cbda2","name":"weather","input":{"query":"both please"}},{"type":"tool_use",'
    b'"id":"toolu_sim_43df67369dbe0883","name":"clock","input":{"query":"both please"}}],"stop_reason":"tool_use","'
    b'stop_sequence":null}'
)
# Streamed by the model `tools`.
TOOLS_STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_sim_1ffd96c977964e'
    b'd1a0939f0f","type":"message","role":"assistant","model":"tools","usage":{"input_tokens":2,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5'
    b'm_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standar'
    b'd"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\nevent: content_block_start\ndat'
    b'a: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_'
    b'sim_136f674a942cbda2","name":"weather","input":{}}}\n\nevent: content_block_delta\ndata: {"ty'
    b'pe":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}'
    b'\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type"'
    b':"input_json_delta","partial_json":"{\\"query\\""}}\n\nevent: content_block_delta\ndata: {"type'
    b'":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":":\\"bo'
    b'th p"}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
    b'{"type":"input_json_delta","partial_json":"lease\\"}"}}\n\nevent: content_block_stop\ndata: {"'
    b'type":"content_block_stop","index":0}\n\nevent: content_block_start\ndata: {"type":"content_b'
    b'lock_start","index":1,"content_block":{"type":"tool_use","id":"toolu_sim_43df67369dbe0883"'
    b',"name":"clock","input":{}}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delt'
    b'a","index":1,"delta":{"type":"input_json_delta","partial_json":""}}\n\nevent: content_block_'
    b'delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","pa'
    b'rtial_json":"{\\"query\\""}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta"'
    b',"index":1,"delta":{"type":"input_json_delta","partial_json":":\\"both p"}}\n\nevent: content'
    b'_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_del'
    b'ta","partial_json":"lease\\"}"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_st'
    b'op","index":1}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":'
    b'"tool_use","stop_sequence":null},"usage":{"input_tokens":null,"cache_creation_input_tokens'
    b'":null,"cache_read_input_tokens":null,"output_tokens":4}}\n\nevent: message_stop\ndata: {"typ'
    b'e":"message_stop"}\n\n'
)
# Streamed by the model `tools+empty-arguments`.
NO_ARGUMENTS_STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_sim_d7a91d0a6c0fb8'
    b'c78aa5e2f8","type":"message","role":"assistant","model":"tools+empty-arguments","usage":{"'
    b'input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creatio'
    b'n":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":0,"servic'
    b'e_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\nevent: content'
    b'_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"tool_u'
    b'se","id":"toolu_sim_bb6e71da79668374","name":"weather","input":{}}}\n\nevent: content_block_'
    b'delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","pa'
    b'rtial_json":""}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n'
    b'\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use","sto'
    b'p_sequence":null},"usage":{"input_tokens":null,"cache_creation_input_tokens":null,"cache_r'
    b'ead_input_tokens":null,"output_tokens":0}}\n\nevent: message_stop\ndata: {"type":"message_sto'
    b'p"}\n\n'
)
# Answered by the model `no-usage`.
NO_USAGE_WHOLE = (
    b'{"id":"msg_sim_5dcff9090d0f5462427253ac","type":"message","role":"assistant","model":"no-usage","content":[{"'
    b'type":"text","text":"O\xc3\xb9 est l\xe2\x80\x99\xc3\xa9t\xc3\xa9 ? \xf0\x9f\x8c\x9e"}],"stop_reason":"end_tu'
    b'rn","stop_sequence":null}'
)
# Streamed by the model `no-usage`.
NO_USAGE_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_bfbd0213ffcb7022042718ce","type":"message","role":"ass'
    b'istant","model":"no-usage","content":[],"stop_reason":null,"stop_sequence":null}}\n\n'
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9"}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" ?"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e"}}\n'
    b'\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_delta\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
# Answered by the model `bad-usage:negative`.
BAD_USAGE_WHOLE = (
    b'{"id":"msg_sim_6e7fa424285cc2efb2ed9eab","type":"message","role":"assistant","model":"bad-usage:negative","us'
    b'age":{"input_tokens":-1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"epheme'
    b'ral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":5,"service_tier":"standard"},"content":'
    b'[{"type":"text","text":"O\xc3\xb9 est l\xe2\x80\x99\xc3\xa9t\xc3\xa9 ? \xf0\x9f\x8c\x9e"}],"stop_reason":"end'
    b'_turn","stop_sequence":null}'
)
# Streamed by the model `bad-usage:fraction`.
BAD_USAGE_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_e47978e2c746c9fef082bfcb","type":"message","role":"ass'
    b'istant","model":"bad-usage:fraction","usage":{"input_tokens":5.5,"cache_creation_input_tokens":0,"cache_read_'
    b'input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens'
    b'":1,"service_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\n'
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9"}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" ?"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e"}}\n'
    b'\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_delta\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens"'
    b':null,"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"output_tokens":5}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
# Streamed by the model `late-usage:0.01`.
LATE_USAGE_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_4c36a45052099d9e10731fd2","type":"message","role":"ass'
    b'istant","model":"late-usage:0.01","usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input'
    b'_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"'
    b'service_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\n'
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9"}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" ?"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e"}}\n'
    b'\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_delta\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}\n\n'
    b"event: message_delta\n"
    b'data: {"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},"usage":{"input_tokens":null,'
    b'"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"output_tokens":5}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
# Answered by the model `extra-fields`.
EXTRA_WHOLE = (
    b'{"id":"msg_sim_78c67c8750f90f0ec4814e05","type":"message","role":"assistant","model":"extra-fields","sim_answ'
    b'er":{"kept":true},"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cach'
    b'e_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":5,"service_tier":"s'
    b'tandard"},"content":[{"type":"text","text":"O\xc3\xb9 est l\xe2\x80\x99\xc3\xa9t\xc3\xa9 ? \xf0\x9f\x8c\x9e",'
    b'"sim_block":"kept"}],"stop_reason":"end_turn","stop_sequence":null}'
)
# Streamed by the model `extra-fields`.
EXTRA_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_ac81ac59c6ac139d3362d62f","type":"message","role":"ass'
    b'istant","model":"extra-fields","sim_answer":{"kept":true},"usage":{"input_tokens":5,"cache_creation_input_tok'
    b'ens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens'
    b'":0},"output_tokens":1,"service_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n'
    b"\nevent: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","sim_block":"kept"}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9","sim_delta":tru'
    b"e}}\n\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est","sim_delta":true}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9","sim_delta":true}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" ?","sim_delta":true}}\n'
    b"\nevent: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e","sim_de'
    b'lta":true}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b"event: message_delta\n"
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens"'
    b':null,"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"output_tokens":5}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
# Streamed by the model `error-frame:2`.
ERROR_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_a5a3c72fa9fd4f6e422b125b","type":"message","role":"ass'
    b'istant","model":"error-frame:2","usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_t'
    b'okens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"se'
    b'rvice_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\n'
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: error\n"
    b'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_sim"}\n'
    b"\n"
)
# Streamed by the model `truncated`.
TRUNCATED_STREAM = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"msg_sim_96f902437141b850437e0747","type":"message","role":"ass'
    b'istant","model":"truncated","usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_token'
    b's":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"servic'
    b'e_tier":"standard"},"content":[],"stop_reason":null,"stop_sequence":null}}\n\n'
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"O\xc3\xb9"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" est"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" l\xe2\x80\x99\xc3\xa9t'
    b'\xc3\xa9"}}\n\nevent: content_block_delta\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" ?"}}\n\n'
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \xf0\x9f\x8c\x9e"}}\n'
    b'\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
)
# Streamed by the model `crlf+comments+multiline+pings:1:0.001`.
DRESSED_STREAM = (
    b': ping\r\n\r\nevent: ping\r\ndata:{\r\ndata:  "type": "ping"\r\ndata:}\r\n\r\n: ping\r\n\r\n'
    b'event: message_start\r\ndata:{\r\ndata:  "type": "message_start",\r\ndata:  "message": {\r\n'
    b'data:    "id": "msg_sim_a18d8d7db7071feff4579240",\r\ndata:    "type": "message",\r\n'
    b'data:    "role": "assistant",\r\ndata:    "model": "crlf+comments+multiline+pings:1:0.001",\r\n'
    b'data:    "usage": {\r\ndata:      "input_tokens": 5,\r\n'
    b'data:      "cache_creation_input_tokens": 0,\r\ndata:      "cache_read_input_tokens": 0,\r\n'
    b'data:      "cache_creation": {\r\ndata:        "ephemeral_5m_input_tokens": 0,\r\n'
    b'data:        "ephemeral_1h_input_tokens": 0\r\ndata:      },\r\ndata:      "output_tokens": 1,\r\n'
    b'data:      "service_tier": "standard"\r\ndata:    },\r\ndata:    "content": [],\r\n'
    b'data:    "stop_reason": null,\r\ndata:    "stop_sequence": null\r\ndata:  }\r\ndata:}\r\n\r\n'
    b': ping\r\n\r\nevent: content_block_start\r\ndata:{\r\ndata:  "type": "content_block_start",\r\n'
    b'data:  "index": 0,\r\ndata:  "content_block": {\r\ndata:    "type": "text",\r\n'
    b'data:    "text": ""\r\ndata:  }\r\ndata:}\r\n\r\n: ping\r\n\r\nevent: content_block_delta\r\n'
    b'data:{\r\ndata:  "type": "content_block_delta",\r\ndata:  "index": 0,\r\ndata:  "delta": {\r\n'
    b'data:    "type": "text_delta",\r\ndata:    "text": "O\xc3\xb9"\r\ndata:  }\r\ndata:}\r\n\r\n'
    b': ping\r\n\r\nevent: content_block_delta\r\ndata:{\r\ndata:  "type": "content_block_delta",\r\n'
    b'data:  "index": 0,\r\ndata:  "delta": {\r\ndata:    "type": "text_delta",\r\n'
    b'data:    "text": " est"\r\ndata:  }\r\ndata:}\r\n\r\n: ping\r\n\r\nevent: content_block_delta\r\n'
    b'data:{\r\ndata:  "type": "content_block_delta",\r\ndata:  "index": 0,\r\ndata:  "delta": {\r\n'
    b'data:    "type": "text_delta",\r\ndata:    "text": " l\xe2\x80\x99\xc3\xa9t\xc3\xa9"\r\ndata:  }\r\n'
    b"data:}\r\n\r\n: ping\r\n\r\nevent: content_block_delta\r\ndata:{\r\n"
    b'data:  "type": "content_block_delta",\r\ndata:  "index": 0,\r\ndata:  "delta": {\r\n'
    b'data:    "type": "text_delta",\r\ndata:    "text": " ?"\r\ndata:  }\r\ndata:}\r\n\r\n: ping\r\n\r\n'
    b'event: content_block_delta\r\ndata:{\r\ndata:  "type": "content_block_delta",\r\n'
    b'data:  "index": 0,\r\ndata:  "delta": {\r\ndata:    "type": "text_delta",\r\n'
    b'data:    "text": " \xf0\x9f\x8c\x9e"\r\ndata:  }\r\ndata:}\r\n\r\n: ping\r\n\r\n'
    b'event: content_block_stop\r\ndata:{\r\ndata:  "type": "content_block_stop",\r\ndata:  "index": 0\r\n'
    b'data:}\r\n\r\n: ping\r\n\r\nevent: message_delta\r\ndata:{\r\ndata:  "type": "message_delta",\r\n'
    b'data:  "delta": {\r\ndata:    "stop_reason": "end_turn",\r\ndata:    "stop_sequence": null\r\n'
    b'data:  },\r\ndata:  "usage": {\r\ndata:    "input_tokens": null,\r\n'
    b'data:    "cache_creation_input_tokens": null,\r\ndata:    "cache_read_input_tokens": null,\r\n'
    b'data:    "output_tokens": 5\r\ndata:  }\r\ndata:}\r\n\r\n: ping\r\n\r\nevent: message_stop\r\n'
    b'data:{\r\ndata:  "type": "message_stop"\r\ndata:}\r\n\r\n'
)
# Answered by the model `status:401`.
STATUS_401 = (
    b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key: sk-sim...abcd"},"request'
    b'_id":"req_sim"}'
)
# Answered by the model `status:429`.
STATUS_429 = (
    b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization\'s '
    b'rate limit. Retry after 7s."},"request_id":"req_sim"}'
)
# Answered by the model `status:500`.
STATUS_500 = b'{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_sim"}'
