// Runs Vercel's AI SDK against a gateway and prints what it read as one JSON object, which pytest checks.
// Usage: node check.mjs API ORIGIN API_KEY MODELS
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, RetryError, stepCountIs, streamText, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false; // warnings go to stdout
const [api, origin, apiKey, models] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${origin}/v1`, apiKey });
const anthropic = createAnthropic({ baseURL: `${origin}/v1`, apiKey });
const make = { responses: openai, chat: openai.chat, messages: anthropic }[api];
const providerOptions = { openai: { store: false } }; // as in docs/clients.md

const script = JSON.stringify([
  { name: "weather", arguments: { city: "Paris" } },
  { name: "weather", arguments: { city: "Berlin" } },
  "Both are fine.",
]);
const looping = { prompt: `Compare. <script>${script}</script>`, stopWhen: stepCountIs(5), providerOptions };

async function loop(run) {
  const asked = [];
  const weather = tool({
    inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
    execute: ({ city }) => {
      asked.push(city);
      return `${city} is fine.`;
    },
  });
  const answer = await run({ ...looping, model: make(`${models}/agent-script`), tools: { weather } });
  return { asked, text: await answer.text, tokens: (await answer.totalUsage).outputTokens };
}

async function secondTurn(options) {
  const model = make(`${models}/echo`);
  const messages = [{ role: "user", content: "hello there" }];
  const first = await generateText({ model, messages, ...options });
  messages.push(...first.response.messages, { role: "user", content: "and again" });
  return (await generateText({ model, messages, ...options })).text;
}

async function failure(ask) {
  try {
    return { text: await ask() };
  } catch (error) {
    const last = RetryError.isInstance(error) ? error.lastError : error;
    return { status: last.statusCode, message: last.message };
  }
}

async function refused(slug) {
  const asked = { model: make(`${models}/${slug}`), prompt: "word ".repeat(200), providerOptions };
  return [slug, await failure(() => generateText(asked))];
}

const refusals = Promise.all(["agent-401", "agent-429", "agent-overflow"].map(refused)); // the SDK waits between its tries
const read = {
  whole: await loop(generateText),
  streamed: await loop(streamText),
  secondTurn: await secondTurn({ providerOptions }),
  withoutTheLine: await failure(() => secondTurn({})),
  refused: Object.fromEntries(await refusals),
};
console.log(JSON.stringify(read));
