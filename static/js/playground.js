// The Playground: a conversation with a model through the gateway's own API. Its key is made with the first message and
// is kept in this memory alone: a page that is loaded again makes another. What a model says is only ever put in as text.
"use strict";

(() => {
  const form = document.getElementById("playground");
  if (!form) return;

  const part = (name) => document.getElementById(`playground-${name}`);
  const [turns, errors, message, send, stop, clear, status] = ["turns", "error", "message", "send", "stop", "clear", "status"].map(part);
  const advice = JSON.parse(part("advice").textContent);
  const KEY_ENDED = ["api_key_not_registered", "api_key_expired"];
  const FULL = { maximumFractionDigits: 10 };
  const written = (value, options) => new Intl.NumberFormat("en", options).format(value);
  const wait = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });
  let conversation = [];  // the messages so far, as the API takes them
  let key = null;
  let keyEnds = 0;  // by the browser's clock, in milliseconds
  let running = null;  // the AbortController of the request that is under way

  // What is said to the person: a code of the API or none, and its words.
  class Refusal extends Error {
    constructor(text, code = "", label = "") {
      super(text);
      this.code = code;
      this.label = label;
    }
  }

  async function freshKey() {
    const fields = new URLSearchParams();
    for (const name of ["csrfmiddlewaretoken", "account"]) fields.set(name, form.elements[name].value);
    const response = await fetch(form.dataset.key, { method: "POST", body: fields, redirect: "manual" });
    if (response.type === "opaqueredirect") throw new Refusal("You are signed out. Reload the page and sign in.");
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refusal(answer.message ?? "This page cannot send requests any more. Reload it.");
    key = answer.key;
    keyEnds = Date.now() + (answer.seconds - 30) * 1000;
  }

  async function ask(path, options = {}) {
    if (key === null || Date.now() > keyEnds) await freshKey();
    const headers = { "Authorization": `Bearer ${key}`, "Content-Type": "application/json" };
    return fetch(path, { ...options, headers, credentials: "omit" });
  }

  async function refusalOf(response) {
    const { error } = await response.json().catch(() => ({}));
    if (!error) return new Refusal("The gateway did not answer in its own words.", "", String(response.status));
    return new Refusal(error.message, error.code ?? "", `${response.status} ${error.code ?? ""}`);
  }

  // A key that another page of the same person, a sign-out or the clock has ended is made anew, once.
  async function complete(body, signal) {
    for (let tries = 0; ; tries += 1) {
      const response = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
      if (response.ok) return response;
      const refusal = await refusalOf(response);
      if (tries > 0 || !KEY_ENDED.includes(refusal.code)) throw refusal;
      key = null;
    }
  }

  async function* chunksOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Refusal("The connection ended before the answer was complete.");
      const events = (held + value).split("\n\n");
      held = events.pop();
      for (const event of events) {
        if (event === "data: [DONE]") return;
        if (event.startsWith("data: ")) yield JSON.parse(event.slice(6));
      }
    }
  }

  function body() {
    const { model, system, max_tokens: most, temperature, stream } = form.elements;
    const request = { model: model.value, messages: [...conversation, { role: "user", content: message.value }] };
    if (system.value.trim()) request.messages.unshift({ role: "system", content: system.value });
    if (most.value) request.max_tokens = most.valueAsNumber;
    if (temperature.value) request.temperature = temperature.valueAsNumber;
    if (stream.checked) request.stream = true;
    return request;
  }

  function addTurn(who, text) {
    const turn = part("turn").content.cloneNode(true).firstElementChild;
    turn.querySelector("h3").textContent = who;
    const said = turn.querySelector(":scope > .said");
    said.append(text);
    turns.append(turn);
    return { turn, said, reasoning: turn.querySelector(".reasoning") };
  }

  function take(shown, delta) {
    if (delta.reasoning_content) {
      shown.reasoning.hidden = false;
      shown.reasoning.querySelector("p").append(delta.reasoning_content);
    }
    shown.said.append(delta.content ?? "", delta.refusal ?? "");
  }

  // What the request was: `usage` and `gateway_metadata` of the answer, or the same of a record.
  function showResult(shown, generation, { model, usage, metadata, seconds, note }) {
    const result = part("result").content.cloneNode(true).firstElementChild;
    const facts = result.querySelector("dl");
    const fact = (label, value, unit = "") => {
      const pair = document.createElement("div");
      const [term, said] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = label;
      said.textContent = `${value} ${unit}`.trim();
      pair.append(term, said);
      facts.append(pair);
    };
    const known = (label, value, options, unit) => fact(label, value === undefined || value === null ? "unknown" : written(value, options), value === undefined || value === null ? "" : unit);
    if (note) {
      result.querySelector("p").textContent = note;
      result.querySelector("p").hidden = false;
    }
    if (model) fact("Route", model);
    if (usage) {
      fact("Tokens", `${written(usage.prompt_tokens)} in, ${written(usage.completion_tokens)} out`);
      known("Cost", usage.cost, FULL, usage.currency);
      known("Energy", metadata.energy_wh, { maximumSignificantDigits: 3 }, "Wh");
      known("Carbon", metadata.carbon_gco2e, { maximumSignificantDigits: 3 }, "g CO₂e");
      if (usage.remaining_balance !== undefined) known("Balance after", usage.remaining_balance, FULL, usage.currency);
    }
    if (seconds) fact("Time", written(seconds, { maximumFractionDigits: 2 }), "s");
    result.querySelector(".record").href = form.dataset.records + generation;
    shown.turn.append(result);
  }

  // An answer that was broken off is charged a moment later: its record says what.
  async function recordOf(generation) {
    for (let tries = 0; tries < 20; tries += 1) {
      const response = await ask(`/v1/generation/${generation}`);
      if (response.ok) return response.json();
      await wait(500);
    }
    return null;
  }

  async function showBrokenOff(shown, generation, note) {
    status.textContent = "Looking up what it cost…";
    const record = await recordOf(generation).catch(() => null);
    const usage = record?.usage;
    const later = "Its cost is in the request details in a moment.";
    showResult(shown, generation, { model: record ? [record.provider, record.model, record.region].join("/") : "", usage, metadata: record?.carbon_metrics ?? {}, note: usage ? note : `${note} ${later}` });
  }

  function showError(error) {
    const label = document.createElement("p");
    const strong = document.createElement("strong");
    strong.textContent = error.label || "The request failed.";
    label.append(strong, ` ${error.message}`);
    errors.replaceChildren(label);
    const todo = error.code || error.label ? advice[error.code] ?? advice[""] : "";
    if (todo) errors.append(Object.assign(document.createElement("p"), { textContent: todo }));
    errors.hidden = false;
  }

  function setRunning(controller) {
    running = controller;
    turns.setAttribute("aria-busy", String(controller !== null));  // spoken once, when it is whole
    const hadFocus = [send, stop].includes(document.activeElement);
    send.hidden = controller !== null;
    stop.hidden = controller === null;
    if (hadFocus) (controller ? stop : message).focus();
    clear.hidden = controller !== null || turns.childElementCount === 0;
    if (controller) return;
    status.textContent = "";
  }

  async function run() {
    const request = body();
    const said = message.value;
    const began = performance.now();
    errors.hidden = true;
    setRunning(new AbortController());
    const asked = addTurn("You", said);
    const shown = addTurn(request.model, "");
    let generation = "";
    let outcome = "Answer complete.";
    status.textContent = "Waiting for the answer…";
    message.value = "";
    try {
      const response = await complete(request, running.signal);
      generation = response.headers.get("X-Generation-Id");
      let last = {};
      if (request.stream) {
        for await (const chunk of chunksOf(response)) {
          if (chunk.error) throw new Refusal(chunk.error.message, chunk.error.code ?? "", chunk.error.code ?? "");
          for (const choice of chunk.choices) take(shown, choice.delta);
          status.textContent = "Receiving the answer…";
          last = chunk;
        }
      } else {
        last = await response.json();
        take(shown, last.choices[0].message);
      }
      showResult(shown, generation, { model: last.model, usage: last.usage, metadata: last.gateway_metadata ?? {}, seconds: (performance.now() - began) / 1000 });
    } catch (error) {
      const isStopped = error.name === "AbortError";
      outcome = isStopped ? "Stopped." : "";
      if (!isStopped) showError(error instanceof Refusal ? error : new Refusal("The gateway could not be reached.", "", "No connection."));
      if (!generation) {  // nothing was delivered, and nothing is billed: what was written can be sent again
        asked.turn.remove();
        shown.turn.remove();
        message.value = said;
        if (isStopped) outcome = "Stopped before the answer began. Nothing was charged.";
      } else {
        await showBrokenOff(shown, generation, isStopped ? "Stopped. The prompt and what was delivered are charged." : "The answer broke off.");
      }
    }
    if (shown.turn.isConnected) {
      conversation.push({ role: "user", content: said });
      if (shown.said.textContent) conversation.push({ role: "assistant", content: shown.said.textContent });
    }
    setRunning(null);
    status.textContent = outcome;
    showCode();
  }

  // The code for the next request, with what has been said so far.

  const quoted = (text) => JSON.stringify(text);
  function showCode() {
    const request = body();
    if (!message.value && !conversation.length) request.messages.at(-1).content = "Hello";
    else if (!message.value) request.messages.pop();
    const base = form.dataset.base;
    const lines = (separator, indent) => Object.entries(request).map(([name, value]) => {
      const shown = name === "messages"
        ? `[\n${value.map((one) => `${indent}    ${separator === "=" ? `{"role": ${quoted(one.role)}, "content": ${quoted(one.content)}}` : `{role: ${quoted(one.role)}, content: ${quoted(one.content)}}`},\n`).join("")}${indent}]`
        : separator === "=" && value === true ? "True" : JSON.stringify(value);
      return `${indent}${name}${separator}${shown},\n`;
    }).join("");
    const code = {
      curl: `curl ${request.stream ? "-N " : ""}${base}/chat/completions \\\n  -H "Authorization: Bearer sk-gw-…" \\\n  -H "Content-Type: application/json" \\\n  -d '${JSON.stringify(request, null, 2).replace(/\{\n +("role".*),\n +("content".*)\n +\}/g, "{$1, $2}").replaceAll("'", "'\\''")}'`,
      python: `# pip install openai\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}", api_key="sk-gw-…")\nanswer = client.chat.completions.create(\n${lines("=", "    ")})\n${request.stream ? 'for chunk in answer:\n    for choice in chunk.choices:\n        print(choice.delta.content or "", end="", flush=True)' : "print(answer.choices[0].message.content)"}`,
      node: `// npm install openai\nimport OpenAI from "openai";\n\nconst client = new OpenAI({baseURL: "${base}", apiKey: "sk-gw-…"});\nconst answer = await client.chat.completions.create({\n${lines(": ", "  ")}});\n${request.stream ? 'for await (const chunk of answer) {\n  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");\n}' : "console.log(answer.choices[0].message.content);"}`,
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
