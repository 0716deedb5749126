import json, pytest
from tests.chat import PATH, question, ask
def nest(n):
    v = 1
    for _ in range(n): v=[v]
    return v
@pytest.mark.parametrize("n",[100,250,260,500,1000,1020])
@pytest.mark.parametrize("stream",[False,True])
def test_probe(account,n,stream):
    body = json.dumps(question("echo",stream=stream))[:-1] + ', "metadata": '+"["*n+"]"*n+"}"
    r = account.http.post(PATH,data=body)
    print("DEPTH",n,stream,r.status_code,r.text[:150])
@pytest.mark.parametrize("f",[{"messages":[{"role":"user","content":[]}]},{"messages":[{"role":"user","content":""}]},{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]},{"messages":[{"role":"user","content":[{"type":"text"}]}]},{"stop":[]},{"n":100000000},{"max_tokens":2**63},{"max_tokens":10**18}, {"temperature":-0.0},{"user":"\x00"}, {"messages":[{"role":"user","content":"\x00"}]}, {"messages":[{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"","arguments":""}}]}]}, {"": 1}, {"stream_options":{"include_usage":True,"x":10**19}}],ids=str)
@pytest.mark.parametrize("stream",[False,True])
def test_probe2(account,f,stream):
    r = ask(account,"echo",stream=stream,**f) if f.get("n")!=100000000 else None
    if r is not None: print("PROBE",f,stream,r.status_code,r.text[:200].replace("\n"," "))
