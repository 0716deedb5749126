// The Playground: a conversation with a model through the gateway's own API. Its key is made with the first message and
// is kept in this memory alone: a page that is loaded again makes another. What a model says is only ever put in as text.
"use strict";

(() => {
  const form = document.getElementById("playground");
  if (!form) return;

  const KEY_ENDED = ["api_key_not_registered", "api_key_expired"];
  const MARGIN = 30;  // seconds before its end in which a key is not used any more
  const part = (name) => document.getElementById(`playground-${name}`);
  const [turns, errors, message, send, stop, clear, status] =
    ["turns", "error", "message", "send", "stop", "clear", "status"].map(part);
  const advice = JSON.parse(part("advice").textContent);
  if (/Mac|iPhone|iPad/.test(navigator.platform)) part("hint").textContent = "⌘+Enter sends";
  const copyOf = (template) => part(template).content.firstElementChild.cloneNode(true);
  const wait = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });

  let conversation = [];  // the messages so far, as the API takes them
  let key = null;
  let keyEnds = 0;  // by the browser's clock, in milliseconds
  let running = null;  // the AbortController of the request that is under way

  // What went wrong: what it is called, what is said of it, and the API's code where it has one.
  class Refusal extends Error {
    constructor(label, text, code = null) {
      super(text);
      this.label = label;
      this.code = code;
    }
  }

  // Requests

  async function makeKey() {
    const fields = new URLSearchParams();
    for (const name of ["csrfmiddlewaretoken", "account"]) fields.set(name, form.elements[name].value);
    const response = await fetch(form.dataset.key, { method: "POST", body: fields, redirect: "manual" });
    if (response.type === "opaqueredirect") throw new Refusal("You are signed out.", "Reload the page and sign in.");
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refusal("No key was made.", answer.message ?? "Reload the page and try again.");
    key = answer.key;
    keyEnds = Date.now() + (answer.seconds - MARGIN) * 1000;
  }

  async function ask(path, options = {}) {
    if (key === null || Date.now() > keyEnds) await makeKey();
    const headers = { "Authorization": `Bearer ${key}`, "Content-Type": "application/json" };
    return fetch(path, { ...options, headers, credentials: "omit" });
  }

  // A key that another page of the same person, a sign-out elsewhere or the clock has ended is made anew, once.
  async function complete(request, signal) {
    for (let tries = 0; ; tries += 1) {
      const response = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify(request), signal });
      if (response.ok) return response;
      const { error } = await response.json().catch(() => ({}));
      const code = error?.code ?? "";
      if (tries > 0 || !KEY_ENDED.includes(code)) {
        throw new Refusal(`${response.status} ${code}`.trim(), error?.message ?? "The answer was not the gateway's.", code);
      }
      key = null;
    }
  }

  async function* chunksOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let held = ""; ;) {
      const { done, value } = await reader.read();
      if (done) throw new Refusal("The answer broke off.", "Its connection ended early.");
      const lines = (held + value).split("\n");
      held = lines.pop();
      for (const line of lines) {
        if (line === "data: [DONE]") return;
        if (!line.startsWith("data: ")) continue;
        const chunk = JSON.parse(line.slice("data: ".length));
        if (chunk.error) throw new Refusal(chunk.error.code, chunk.error.message, chunk.error.code);
        yield chunk;
      }
    }
  }

  // An answer that broke off is charged a moment later. The list of records has it then; asked for by its id, it would be
  // a failed request of the account until then.
  async function recordOf(generation) {
    for (let tries = 0; tries < 20; tries += 1) {
      await wait(500);
      const response = await ask("/v1/generations?limit=20");
      const record = response.ok && (await response.json()).data.find((one) => one.generation_id === generation);
      if (record) return record;
    }
    return {};
  }

  function nextRequest() {
    const { model, system, max_tokens: most, temperature, stream } = form.elements;
    const request = { model: model.value, messages: [...conversation, { role: "user", content: message.value }] };
    if (system.value.trim()) request.messages.unshift({ role: "system", content: system.value });
    if (most.value) request.max_tokens = most.valueAsNumber;
    if (temperature.value) request.temperature = temperature.valueAsNumber;
    if (stream.checked) request.stream = true;
    return request;
  }

  // What is seen

  function addTurn(who, text = "") {
    const turn = copyOf("turn");
    turn.querySelector("h3").textContent = who;
    turn.querySelector(":scope > .said").textContent = text;
    turns.append(turn);
    return turn;
  }

  function addDelta(turn, delta) {
    turn.querySelector(":scope > .said").append(delta.content ?? "", delta.refusal ?? "");
    if (!delta.reasoning_content) return;
    turn.querySelector(".reasoning").hidden = false;
    turn.querySelector(".reasoning .said").append(delta.reasoning_content);
  }

  function addResult(turn, generation, note, { model, usage, energy, carbon, adjusted, seconds }) {
    const result = copyOf("result");
    const add = (label, text) => {
      const fact = document.createElement("div");
      fact.append(document.createElement("dt"), document.createElement("dd"));
      fact.firstChild.textContent = label;
      fact.lastChild.textContent = text;
      result.querySelector("dl").append(fact);
    };
    const number = (value, unit, options) =>
      (value === undefined ? "unknown" : `${new Intl.NumberFormat("en", options).format(value)} ${unit}`.trim());
    const exact = { maximumFractionDigits: 10 };
    const rounded = { maximumSignificantDigits: 3 };
    if (usage) {
      add("Route", model);
      add("Tokens", `${number(usage.prompt_tokens, "in")}, ${number(usage.completion_tokens, "out")}`);
      add("Cost", number(usage.cost, usage.currency, exact));
      add("Energy", number(energy, "Wh", rounded));
      add("Carbon", number(carbon, "g CO₂e", rounded));
      add("Balance after", number(usage.remaining_balance, usage.currency, exact));
    }
    if (adjusted) add("Not sent as asked", adjusted);
    if (seconds) add("Time", number(seconds, "s", rounded));
    result.querySelector(".note").textContent = note;
    result.querySelector(".record").href = form.dataset.records + generation;
    turn.append(result);
  }

  function showError({ label, message: text, code }) {
    const told = document.createElement("p");
    const strong = document.createElement("strong");
    strong.textContent = label;
    told.append(strong, ` ${text}`);
    errors.replaceChildren(told);
    if (code !== null) errors.append(Object.assign(document.createElement("p"), { textContent: advice[code] ?? advice[""] }));
    errors.hidden = false;
  }

  function setRunning(controller) {
    const hadFocus = [send, stop].includes(document.activeElement);
    running = controller;
    turns.setAttribute("aria-busy", String(controller !== null));  // spoken once, when it is whole
    send.hidden = controller !== null;
    stop.hidden = controller === null;
    clear.hidden = controller !== null || !turns.hasChildNodes();
    if (hadFocus) (controller ? stop : message).focus();
  }

  // One message and its answer

  async function receive(request, turn, signal, begun) {
    const response = await complete(request, signal);
    const generation = response.headers.get("X-Generation-Id");
    begun(generation);
    let last;
    if (request.stream) {
      for await (const chunk of chunksOf(response)) {
        for (const choice of chunk.choices) addDelta(turn, choice.delta);
        last = chunk;
      }
    } else {
      last = await response.json();
      addDelta(turn, last.choices[0].message);
    }
    const { energy_wh: energy, carbon_gco2e: carbon } = last.gateway_metadata;
    return { model: last.model, usage: last.usage, energy, carbon, adjusted: response.headers.get("X-Gateway-Adjusted-Params") };
  }

  // Where an answer ended early: the turns are taken back where nothing of it came, else its charge is looked up.
  async function endEarly(error, generation, asked, answered) {
    const isStopped = error.name === "AbortError";
    if (!isStopped) showError(error instanceof Refusal ? error : new Refusal("No connection.", "The gateway could not be reached."));
    if (!generation) {
      asked.remove();
      answered.remove();
      message.value ||= asked.querySelector(":scope > .said").textContent;
      return isStopped ? "Stopped before the answer began. Nothing is charged." : "";
    }
    status.textContent = "Looking up what it cost…";
    const record = await recordOf(generation).catch(() => ({}));
    const note = record.usage ? "The prompt and what was delivered are charged." : "Its cost is in the request details in a moment.";
    const { model, usage, energy_wh: energy, carbon_gco2e: carbon } = record;
    addResult(answered, generation, note, { model, usage, energy, carbon });
    return isStopped ? "Stopped." : "The answer broke off.";
  }

  async function run() {
    const request = nextRequest();
    const began = performance.now();
    const asked = addTurn("You", message.value);
    const answered = addTurn(request.model);
    let generation = null;
    let outcome = "Answer complete.";
    errors.hidden = true;
    message.value = "";
    setRunning(new AbortController());
    status.textContent = "Waiting for the answer…";
    const begun = (id) => {
      generation = id;
      status.textContent = "Receiving the answer…";
    };
    try {
      const facts = await receive(request, answered, running.signal, begun);
      addResult(answered, generation, "", { ...facts, seconds: (performance.now() - began) / 1000 });
    } catch (error) {
      outcome = await endEarly(error, generation, asked, answered);
    }
    const content = answered.querySelector(":scope > .said").textContent;
    if (generation) conversation.push(request.messages.at(-1));
    if (content) conversation.push({ role: "assistant", content });
    setRunning(null);
    status.textContent = outcome;
    showCode();
  }

  // The code: of what would be sent now, or of what was sent last where nothing is written

  function showCode() {
    const request = nextRequest();
    if (!message.value && conversation.length) {
      request.messages = request.messages.slice(0, request.messages.findLastIndex((one) => one.role === "user" && one.content) + 1);
    }
    request.messages.at(-1).content ||= "Hello";
    const base = form.dataset.base;
    const messages = (quote, indent) => request.messages.map(({ role, content }) =>
      `\n${indent}  {${quote}role${quote}: ${JSON.stringify(role)}, ${quote}content${quote}: ${JSON.stringify(content)}},`).join("");
    const fields = (indent, assign, quote, isTrue) => Object.entries(request).map(([name, value]) => {
      const shown = name === "messages" ? `[${messages(quote, indent)}\n${indent}]` : value === true ? isTrue : JSON.stringify(value);
      return `\n${indent}${name}${assign}${shown},`;
    }).join("");
    // Each message on a line of its own.
    const json = JSON.stringify(request, null, 2).replace(/\{\s+("role": .*),\s+("content": .*)\s+\}/g, "{$1, $2}");
    const code = {
      curl: `curl ${request.stream ? "-N " : ""}${base}/chat/completions \\
  -H "Authorization: Bearer sk-gw-…" \\
  -H "Content-Type: application/json" \\
  -d '${json.replaceAll("'", "'\\''")}'`,
      python: `# pip install openai
from openai import OpenAI

client = OpenAI(base_url="${base}", api_key="sk-gw-…")
answer = client.chat.completions.create(${fields("    ", "=", '"', "True")}
)
${request.stream ? `for chunk in answer:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)` : "print(answer.choices[0].message.content)"}`,
      node: `// npm install openai
import OpenAI from "openai";

const client = new OpenAI({baseURL: "${base}", apiKey: "sk-gw-…"});
const answer = await client.chat.completions.create({${fields("  ", ": ", "", "true")}
});
${request.stream ? `for await (const chunk of answer) {
  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");
}` : "console.log(answer.choices[0].message.content);"}`,
    };
    for (const [language, text] of Object.entries(code)) document.getElementById(`snippet-${language}`).textContent = text;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) run();
  });
  form.addEventListener("input", showCode);
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  stop.addEventListener("click", () => running?.abort());
  clear.addEventListener("click", () => {
    conversation = [];
    turns.replaceChildren();
    errors.hidden = true;
    clear.hidden = true;
    status.textContent = "";
    message.focus();
    showCode();
  });
  part("off").hidden = true;
  form.hidden = false;
  showCode();
})();
