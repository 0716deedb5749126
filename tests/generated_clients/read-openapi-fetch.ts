/** Sends requests through openapi-fetch with the types of openapi-typescript, and prints what the client read, as JSON. */
import createClient from "openapi-fetch";
import type { components, paths } from "./api";
import { baseUrl, dataOf, key, names } from "./events";

type Schemas = components["schemas"];
// TypeScript distinguishes events by `type` only if no member of the union accepts any string, as `UnknownMessageEvent` does.
type Events = "message_start" | "content_block_start" | "content_block_delta" | "content_block_stop" | "message_delta";
type Known = Schemas[Events | "message_stop" | "ping"];
type Delta = Schemas["TextDelta" | "ThinkingDelta" | "SignatureDelta" | "InputJsonDelta"];

const client = createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

function message(name: string, stream: boolean): Schemas["MessagesRequest"] {
  const messages: Schemas["MessagesRequest"]["messages"] = [{ role: "user", content: "hello there" }];
  const request = { model: `simanthropic/claude/${name}`, max_tokens: 64, messages, stream };
  return name === "echo" ? request : { ...request, tools: [{ name: "weather", input_schema: { type: "object" } }] };
}

function chat(stream: boolean, model = "sim/test/echo"): Schemas["ChatCompletionRequest"] {
  return { model, messages: [{ role: "user", content: "hello there" }], stream };
}

async function answer(name: string): Promise<Schemas["Message"]> {
  const { data, error } = await client.POST("/messages", { body: message(name, false) });
  if (!data) throw new Error(JSON.stringify(error));
  return data;
}

function read(event: Known): [string, string] {
  switch (event.type) {
    case "content_block_start": return [`${event.content_block.type}_block`, ""];
    case "content_block_delta": {
      const delta = event.delta as Delta;
      return [delta.type, delta.type === "text_delta" ? delta.text : ""];
    }
    default: return [event.type, ""];
  }
}

/** Returns an error's code, the field at fault, and its type. */
function said(refusal: Schemas["Error" | "MessageError" | "ModelsError"] | undefined) {
  const { code, param, type } = refusal!.error;
  return [code, param, type];
}

async function main() {
  const whole = await answer("echo");
  const called = await answer("reasoning-tools");
  const first = whole.content[0] as Schemas["TextBlock"];
  const events: Record<string, string[]> = {};
  let streamed = "";
  for (const model of names) {
    events[model] = [];
    const { data } = await client.POST("/messages", { body: message(model, true), parseAs: "stream" });
    for await (const each of dataOf(data!)) {
      const [name, text] = read(JSON.parse(each) as Known);
      events[model].push(name);
      if (model === "echo") streamed += text;
    }
  }
  const { data: completion } = await client.POST("/chat/completions", { body: chat(false) });
  const { data: stream } = await client.POST("/chat/completions", { body: chat(true), parseAs: "stream" });
  const chunks: Schemas["ChatCompletionChunk"][] = [];
  for await (const each of dataOf(stream!)) chunks.push(JSON.parse(each));
  const ofChat = await client.POST("/chat/completions", { body: chat(false, "alias/none") });
  const ofMessages = await client.POST("/messages", { body: { ...message("echo", false), model: "alias/none" } });
  const ofModels = await client.GET("/models/{model_id}", { params: { path: { model_id: "none/none/none" } } });
  const output = {
    text: first.text,
    tokens: whole.usage.output_tokens,
    provider: whole.gateway_metadata.provider,
    blocks: called.content.map((block) => `${block.type}_block`),
    events,
    streamed,
    chat: {
      text: completion!.choices[0].message.content,
      total: completion!.usage!.total_tokens,
      streamed: chunks.flatMap((chunk) => chunk.choices.map(({ delta }) => delta.content ?? "")).join(""),
      usages: chunks.flatMap((chunk) => (chunk.usage ? [chunk.usage.total_tokens] : [])),
    },
    refused: [said(ofChat.error), said(ofMessages.error), said(ofModels.error)],
  };
  console.log(JSON.stringify(output));
}

main();
