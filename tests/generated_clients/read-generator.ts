/** Sends requests through the typescript-fetch client of the OpenAPI Generator, and prints what the client read, as JSON. */
import {
  CatalogueApi, ChatCompletionChunkFromJSON, ChatCompletionRequest, ChatMessageRoleEnum, Configuration,
  ContentBlockDeltaFromJSON, ContentBlockStartFromJSON, ContentBlockStopFromJSON, ErrorObject, InferenceApi,
  MessageDeltaFromJSON, MessageErrorFromJSON, MessageErrorObject, MessageStartFromJSON, MessageStopFromJSON,
  MessagesRequest, MessagesRequestMessagesInnerRoleEnum, ModelErrorFromJSON, ModelsErrorFromJSON, PingFromJSON,
  ResponseError,
} from "./client/index";
import { baseUrl, dataOf, key, names } from "./events";

const configuration = new Configuration({ basePath: baseUrl, accessToken: key });
const [api, catalogue] = [new InferenceApi(configuration), new CatalogueApi(configuration)];

function message(name: string, stream: boolean): MessagesRequest {
  const role = MessagesRequestMessagesInnerRoleEnum.User;
  const messages = [{ role, content: "hello there" }];
  const request = { model: `simanthropic/claude/${name}`, maxTokens: 64, messages, stream };
  return name === "echo" ? request : { ...request, tools: [{ name: "weather", inputSchema: { type: "object" } }] };
}

function chat(stream: boolean, model = "sim/test/echo"): ChatCompletionRequest {
  return { model, messages: [{ role: ChatMessageRoleEnum.User, content: "hello there" }], stream };
}

/** The generated union has the members of all its types at once, so each event is read as the type that it names. */
function read(data: string): [string, string] {
  const json = JSON.parse(data);
  switch (json.type) {
    case "message_start": return [MessageStartFromJSON(json).type, ""];
    case "content_block_start": {
      const event = ContentBlockStartFromJSON(json);
      return [`${event.contentBlock.type}_block`, ""];
    }
    case "content_block_delta": {
      const event = ContentBlockDeltaFromJSON(json);
      return [event.delta.type, event.delta.text ?? ""];
    }
    case "content_block_stop": return [ContentBlockStopFromJSON(json).type, ""];
    case "message_delta": return [MessageDeltaFromJSON(json).type, ""];
    case "message_stop": return [MessageStopFromJSON(json).type, ""];
    case "ping": return [PingFromJSON(json).type, ""];
    default: return [`unknown ${json.type}`, ""];
  }
}

/** Returns an error's code, the field at fault, and its type. */
async function refused(ask: Promise<unknown>, read: (json: any) => { error: ErrorObject | MessageErrorObject }) {
  try {
    await ask;
  } catch (exception) {
    const { error } = read(await (exception as ResponseError).response.json());
    return [error.code, error.param, error.type];
  }
  return [];
}

async function main() {
  const whole = await api.createMessage({ messagesRequest: message("echo", false) });
  const called = await api.createMessage({ messagesRequest: message("reasoning-tools", false) });
  const events: Record<string, string[]> = {};
  let streamed = "";
  for (const model of names) {
    events[model] = [];
    const { raw } = await api.createMessageRaw({ messagesRequest: message(model, true) });
    for await (const data of dataOf(raw.body!)) {
      const [name, text] = read(data);
      events[model].push(name);
      if (model === "echo") streamed += text;
    }
  }
  const completion = await api.createChatCompletion({ chatCompletionRequest: chat(false) });
  const { raw } = await api.createChatCompletionRaw({ chatCompletionRequest: chat(true) });
  const chunks = [];
  for await (const data of dataOf(raw.body!)) chunks.push(ChatCompletionChunkFromJSON(JSON.parse(data)));
  const output = {
    text: whole.content[0].text,
    tokens: whole.usage.outputTokens,
    provider: whole.gatewayMetadata.provider,
    blocks: called.content.map((block) => `${block.type}_block`),
    events,
    streamed,
    chat: {
      text: completion.choices[0].message.content,
      total: completion.usage!.totalTokens,
      streamed: chunks.flatMap((chunk) => chunk.choices.map(({ delta }) => (delta as any).content ?? "")).join(""),
      usages: chunks.flatMap((chunk) => (chunk.usage ? [chunk.usage.totalTokens] : [])),
    },
    refused: [
      await refused(api.createChatCompletion({ chatCompletionRequest: chat(false, "alias/none") }), ModelErrorFromJSON),
      await refused(
        api.createMessage({ messagesRequest: { ...message("echo", false), model: "alias/none" } }), MessageErrorFromJSON,
      ),
      await refused(catalogue.readModel({ modelId: "none/none/none" }), ModelsErrorFromJSON),
    ],
  };
  console.log(JSON.stringify(output));
}

main();
