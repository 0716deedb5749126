// Runs the official JavaScript clients against a gateway and prints what they read as one JSON object, which pytest checks.
// Usage: node check.mjs BASE_URL API_KEY
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const hello = [{ role: "user", content: "hello there" }];
const tools = ["weather", "clock"].map((name) => ({
  type: "function",
  function: { name, parameters: { type: "object", properties: {} } },
}));

async function whole(model) {
  const { data, response } = await client.chat.completions.create({ model, messages: hello }).withResponse();
  return {
    text: data.choices[0].message.content,
    total: data.usage.total_tokens,
    provider: data.gateway_metadata.provider,
    requestId: data._request_id,
    generation: response.headers.get("x-generation-id"),
    id: data.id,
  };
}

async function streamed(model, options) {
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ model, messages: hello, stream: true, ...options })) {
    chunks.push(chunk);
  }
  const usage = chunks.filter((chunk) => chunk.usage);
  return {
    text: chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join(""),
    usages: usage.map((chunk) => chunk.usage.total_tokens),
    finish: chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.finish_reason)).filter(Boolean),
  };
}

async function helper(model) {
  const final = await client.chat.completions.stream({ model, messages: hello }).finalChatCompletion();
  return { text: final.choices[0].message.content, finish: final.choices[0].finish_reason };
}

async function text(model) {
  const result = await client.completions.create({ model, prompt: "hello there" });
  let streamedText = "";
  for await (const chunk of await client.completions.create({ model, prompt: "hello there", stream: true })) {
    streamedText += chunk.choices.map((choice) => choice.text).join("");
  }
  return { text: result.choices[0].text, streamed: streamedText };
}

async function toolLoop(model, ask) {
  const messages = [{ role: "user", content: "both please" }];
  const asked = (await ask({ model, messages, tools })).choices[0];
  messages.push(asked.message);
  for (const call of asked.message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: `${call.function.name}.` });
  }
  const final = (await ask({ model, messages, tools })).choices[0];
  return {
    finish: asked.finish_reason,
    calls: asked.message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
    text: final.message.content,
  };
}

async function responses(models, ask) {
  const result = await ask({ model: `${models}/echo`, input: "hello there" });
  const input = [{ role: "user", content: "both please" }];
  const request = { model: `${models}/reasoning-tools`, include: ["reasoning.encrypted_content"] };
  request.tools = tools.map((tool) => ({ type: "function", strict: false, ...tool.function }));
  const asked = await ask({ ...request, input });
  const calls = asked.output.filter((item) => item.type === "function_call");
  input.push(...asked.output);
  input.push(...calls.map(({ call_id, name }) => ({ type: "function_call_output", call_id, output: `${name}.` })));
  return {
    text: result.output_text,
    total: result.usage.total_tokens,
    provider: result.gateway_metadata.provider,
    items: asked.output.map((item) => item.type),
    calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]),
    final: (await ask({ ...request, input })).output_text,
  };
}

async function embeddings(model) {
  // The client requests base64 by itself and unpacks it; with floats it would silently return empty vectors.
  const byDefault = await client.embeddings.create({ model, input: ["hello there", "hi"] });
  const floats = await client.embeddings.create({ model, input: "hello there", encoding_format: "float" });
  return {
    byDefault: byDefault.data.map((item) => item.embedding),
    floats: floats.data[0].embedding,
    tokens: byDefault.usage.prompt_tokens,
  };
}

const claude = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey, maxRetries: 0 });
const claudeTools = tools.map(({ function: { name, parameters } }) => ({ name, input_schema: parameters }));

async function messages(models) {
  const ask = { max_tokens: 64, messages: hello };
  const whole = await claude.messages.create({ model: `${models}/echo`, ...ask });
  const streamed = await claude.messages.stream({ model: `${models}/reasoning`, ...ask }).finalMessage();
  const both = [{ role: "user", content: "both please" }];
  const called = { model: `${models}/tools`, max_tokens: 64, tools: claudeTools };
  const asked = await claude.messages.stream({ ...called, messages: both }).finalMessage();
  const results = asked.content.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: `${call.name}.` }));
  const turns = [...both, { role: "assistant", content: asked.content }, { role: "user", content: results }];
  const final = await claude.messages.create({ ...called, messages: turns });
  const counted = await claude.messages.countTokens({ model: `${models}/echo`, messages: hello });
  return {
    text: whole.content[0].text,
    usage: [whole.usage.input_tokens, whole.usage.output_tokens],
    provider: whole.gateway_metadata.provider,
    streamed: streamed.content.map((block) => block.thinking ?? block.text),
    calls: asked.content.map((call) => [call.name, call.input]),
    stop: asked.stop_reason,
    final: final.content[0].text,
    counts: counted.input_tokens >= whole.usage.input_tokens,
    midStream: await failure(() => claude.messages.stream({ model: `${models}/error-frame`, ...ask }).finalMessage()),
    refused: await failure(() => claude.messages.create({ model: `${models}/status-400`, ...ask })),
  };
}

async function failure(run) {
  try {
    await run();
  } catch (error) {
    return { name: error.constructor.name, status: error.status ?? null, code: error.code, param: error.param ?? null };
  }
  return null;
}

const whether = { whole: (request) => client.chat.completions.create(request) };
whether.streamed = (request) => client.chat.completions.stream(request).finalChatCompletion();

const read = { failures: {} };
for (const [name, models] of Object.entries({ openai: "sim/test", anthropic: "simanthropic/claude" })) {
  read[name] = {
    whole: await whole(`${models}/echo`),
    streamed: await streamed(`${models}/echo`),
    askedForUsage: await streamed(`${models}/echo`, { stream_options: { include_usage: true } }),
    pings: await streamed(`${models}/pings`),
    helper: await helper(`${models}/echo`),
    text: await text(`${models}/echo`),
    tools: await toolLoop(`${models}/tools`, whether.whole),
    streamedTools: await toolLoop(`${models}/tools`, whether.streamed),
    responses: await responses(models, (request) => client.responses.create(request)),
    streamedResponses: await responses(models, (request) => client.responses.stream(request).finalResponse()),
  };
  read[name].messages = await messages(models);
  read.failures[name] = {
    midStream: await failure(() => streamed(`${models}/error-frame`)),
    refused: await failure(() => whole(`${models}/status-400`)),
  };
}
read.embeddings = await embeddings("sim/embed/echo");
read.convertedEmbeddings = await embeddings("sim/embed/ignores-format");
read.failures.shape = await failure(() => client.chat.completions.create({ model: "sim/test/echo", messages: [] }));
read.models = [];
for await (const model of claude.models.list({ limit: 100 })) read.models.push(model.id);
console.log(JSON.stringify(read));
