// The Playground: a conversation with a model, or with two side by side, through the gateway's own API. The page names the
// addresses of the other modules, which have a version in them: a browser never mixes files of two releases.

const load = (name) => import(document.querySelector(`link[rel="modulepreload"][href*="/playground-${name}.js"]`).href);
const [{ Api, Refusal, chunksOf }, { codeOf }, { Images, thumbnail }, { MarkdownView }, { Store }, { AnswerView, factsOf, showExchange }] =
  await Promise.all(["api", "code", "images", "markdown", "store", "turns"].map(load));

const AT_END = 40;  // pixels from the end of the conversation that still count as its end
const MOST_SENT = 24_000_000;  // characters of all images of a request: the gateway takes 32 MiB
const OPTIONAL = ["temperature", "top_p", "seed", "stop", "response_format"];
const KEPT = ["model", "other", "system", "max_tokens", "stream", "message", ...OPTIONAL];

const form = document.getElementById("playground");
const part = (name) => document.getElementById(`playground-${name}`);
const [turns, errors, message, send, stop, clear, status, compared, compare, editing] =
  ["turns", "error", "message", "send", "stop", "clear", "status", "compared", "compare", "editing"].map(part);
const { model, other } = form.elements;
const advice = JSON.parse(part("advice").textContent);
const api = new Api(form);
const store = new Store(form.dataset.user, form.elements.account.value);
const images = new Images(part("images"), () => showCode());

// The conversation: `{text, images, answers, view}` each. An answer is what AnswerView shows.
let exchanges = [];
let edited = null;  // the exchange that the next message replaces
let isFollowing = true;
let lastTop = 0;
const running = new Set();  // an AbortController for each answer that is under way

// What the chosen models take

const chosen = () => (compared.hidden ? [model.value] : [model.value, other.value]);
const optionOf = (id) => [...model.options].find((option) => option.value === id);
const lacks = (id, name) => {
  const option = optionOf(id);
  return (option?.dataset.lacks ?? option?.parentElement.dataset.lacks ?? "").split(" ").includes(name);
};
const takesImages = (id) => optionOf(id)?.dataset.images !== undefined;

function showAbilities() {
  for (const name of OPTIONAL) form.elements[name].disabled = chosen().every((id) => lacks(id, name));
  part("attach").hidden = !chosen().some(takesImages);
}

// Requests

function messageOf(exchange, id) {
  if (!exchange.images.length || !takesImages(id)) return { role: "user", content: exchange.text };
  const parts = exchange.images.map((url) => ({ type: "image_url", image_url: { url } }));
  return { role: "user", content: exchange.text ? [{ type: "text", text: exchange.text }, ...parts] : parts };
}

// The exchanges, the last of which has no answer yet, as a model gets them. A model that was added later gets the earlier
// answers of the other one.
function requestOf(id, column, asked) {
  const { system, max_tokens: most, temperature, top_p: top, seed, stop: ends, response_format: isJson, stream } = form.elements;
  const messages = asked.flatMap((exchange, index) => {
    const answer = exchange.answers[column] ?? exchange.answers[0];
    const isAnswered = index < asked.length - 1 && answer?.text;
    return [messageOf(exchange, id), ...(isAnswered ? [{ role: "assistant", content: answer.text }] : [])];
  });
  if (system.value.trim()) messages.unshift({ role: "system", content: system.value });
  const request = { model: id, messages };
  const takes = (name) => !lacks(id, name);
  if (most.value) request.max_tokens = most.valueAsNumber;
  if (temperature.value && takes("temperature")) request.temperature = temperature.valueAsNumber;
  if (top.value && takes("top_p")) request.top_p = top.valueAsNumber;
  if (seed.value && takes("seed")) request.seed = seed.valueAsNumber;
  const sequences = ends.value.split("\n").filter(Boolean);
  if (sequences.length && takes("stop")) request.stop = sequences;
  if (isJson.checked && takes("response_format")) request.response_format = { type: "json_object" };
  if (stream.checked) request.stream = true;
  return request;
}

// What is seen

function follow() {
  if (isFollowing) turns.scrollTop = turns.scrollHeight;
}

function showAnswer(answer, exchange, column) {
  const view = new AnswerView(answer, (root) => new MarkdownView(root, follow), form.dataset.records);
  view.retry.addEventListener("click", () => run(exchange, column));
  const place = exchange.view.querySelector(".answers");
  if (place.children[column]) place.children[column].replaceWith(view.element);
  else place.append(view.element);
  return view;
}

function show(exchange) {
  exchange.view = showExchange(exchange, thumbnail);
  exchange.view.querySelector(".edit").addEventListener("click", () => edit(exchange));
  exchange.view.querySelector(".delete").addEventListener("click", () => {
    exchanges = exchanges.filter((one) => one !== exchange);
    exchange.view.remove();
    if (edited === exchange) edit(null);
    message.focus();
    settle();
  });
  turns.append(exchange.view);
  exchange.answers.forEach((answer, column) => answer && showAnswer(answer, exchange, column).finish());
}

function showError({ label, message: text, code }, id) {
  const told = document.createElement("p");
  const strong = document.createElement("strong");
  strong.textContent = label;
  told.append(strong, compared.hidden ? ` ${text}` : ` ${id}: ${text}`);
  errors.append(told);
  if (code !== null) {
    const { text: todo, address, title } = advice[code] ?? advice[""];
    const told = Object.assign(document.createElement("p"), { textContent: `${todo} ` });
    if (address) told.append(Object.assign(document.createElement("a"), { href: address, textContent: title }));
    errors.append(told);
  }
  errors.hidden = false;
}

function clearErrors() {
  errors.replaceChildren();
  errors.hidden = true;
}

function showRunning() {
  const hadFocus = [send, stop].includes(document.activeElement);
  const isRunning = running.size > 0;
  turns.setAttribute("aria-busy", String(isRunning));  // spoken once, when it is whole
  send.hidden = isRunning;
  stop.hidden = !isRunning;
  stop.textContent = compared.hidden ? "Stop" : "Stop both";
  clear.hidden = isRunning || !exchanges.length;
  if (hadFocus) (isRunning ? stop : message).focus();
}

// After a change: keeps the conversation and shows the code.
function settle() {
  showRunning();
  showAbilities();
  showCode();
  const words = keep();
  if (words) status.textContent = words;
}

// Edits a message, or none any more.
function edit(exchange) {
  edited?.view.classList.remove("edited");
  edited = exchange;
  editing.hidden = exchange === null;
  message.value = exchange?.text ?? "";
  images.set(exchange?.images ?? []);
  exchange?.view.classList.add("edited");
  message.focus();
}

// One answer. Returns whether anything of it came.

async function receive(request, view, answer, signal, began) {
  const response = await api.complete(request, signal);
  answer.generation = response.headers.get("X-Generation-Id");
  status.textContent = "Receiving the answer…";
  let last;
  let first;
  if (request.stream) {
    for await (const chunk of chunksOf(response)) {
      for (const { delta } of chunk.choices) {
        if (delta.content || delta.refusal || delta.reasoning_content || delta.tool_calls) first ??= (performance.now() - began) / 1000;
        view.add(delta);
      }
      last = chunk;
    }
  } else {
    last = await response.json();
    view.add(last.choices[0].message);
  }
  const { energy_wh: energy, carbon_gco2e: carbon } = last.gateway_metadata;
  const adjusted = response.headers.get("X-Gateway-Adjusted-Params");
  return { model: last.model, usage: last.usage, energy, carbon, adjusted, first, seconds: (performance.now() - began) / 1000 };
}

// Where an answer ended early, its charge is looked up.
async function endEarly(error, answer) {
  const isStopped = error.name === "AbortError";
  if (!isStopped) {
    showError(error instanceof Refusal ? error : new Refusal("No connection.", "The gateway could not be reached."), answer.model);
  }
  if (!answer.generation) return isStopped ? "Stopped before the answer began. Nothing is charged." : "";
  status.textContent = "Looking up what it cost…";
  const record = await api.recordOf(answer.generation).catch(() => ({}));
  answer.note = record.usage ? "The prompt and what was delivered are charged." : "Its cost is in the request details in a moment.";
  const { model: route, usage, energy_wh: energy, carbon_gco2e: carbon } = record;
  answer.facts = factsOf({ model: route, usage, energy, carbon });
  return isStopped ? "Stopped." : "The answer was interrupted.";
}

async function answerOf(exchange, column, id) {
  const before = exchange.answers[column];
  const answer = { model: id, text: "", reasoning: "", calls: [], note: "", generation: null, facts: [] };
  const request = requestOf(id, column, exchanges.slice(0, exchanges.indexOf(exchange) + 1));
  const hasLeftOut = !takesImages(id) && exchanges.some((one) => one.images.length);
  const view = showAnswer(answer, exchange, column);
  const controller = new AbortController();
  let outcome = "Answer complete.";
  exchange.answers[column] = answer;
  running.add(controller);
  view.stop.hidden = compared.hidden;
  view.stop.addEventListener("click", () => controller.abort());
  showRunning();
  follow();
  try {
    answer.facts = factsOf(await receive(request, view, answer, controller.signal, performance.now()));
  } catch (error) {
    outcome = await endEarly(error, answer);
  }
  running.delete(controller);
  view.stop.hidden = true;
  if (hasLeftOut) answer.note = `${answer.note} The images were left out, because this model takes none.`.trim();
  if (!answer.generation) {
    answer.note ||= outcome || "No answer.";
    exchange.answers[column] = before ?? answer;
    if (before) showAnswer(before, exchange, column).finish();
  }
  view.finish();
  follow();
  return { outcome, hasCome: answer.generation !== null };
}

// Answers an exchange, in all columns or in one again. Returns whether anything came.
async function run(exchange, column = null) {
  if (running.size) return true;
  clearErrors();
  isFollowing = true;
  status.textContent = "Waiting for the answer…";
  const columns = column === null ? chosen().map((id, index) => [index, id]) : [[column, chosen()[column] ?? exchange.answers[column].model]];
  const results = await Promise.all(columns.map(([index, id]) => answerOf(exchange, index, id)));
  status.textContent = results.map(({ outcome }) => outcome).find((words) => words !== "Answer complete.") ?? "Answer complete.";
  settle();
  return results.some(({ hasCome }) => hasCome);
}

// Sends the message. It returns to its box, and what it replaced to its place, if no answer began.
async function sendMessage() {
  const exchange = { text: message.value, images: images.addresses, answers: [] };
  const at = edited ? exchanges.indexOf(edited) : exchanges.length;
  const sent = [...exchanges.slice(0, at), exchange].flatMap((one) => one.images).reduce((sum, { length }) => sum + length, 0);
  if (sent > MOST_SENT) {
    clearErrors();
    return showError(new Refusal("Too many images.", "The images of a conversation may have 18 MB in all. Delete a message with images."), model.value);
  }
  const replaced = exchanges.slice(at);
  exchanges = [...exchanges.slice(0, at), exchange];
  for (const { view } of replaced) view.remove();
  edit(null);
  show(exchange);
  if (await run(exchange)) return undefined;
  exchange.view.remove();
  exchanges = [...exchanges.slice(0, at), ...replaced];
  replaced.forEach(show);
  if (!message.value && !images.addresses.length) {
    message.value = exchange.text;
    images.set(exchange.images);
  }
  return settle();
}

// The code: of what would be sent now, or of what was sent last where nothing is written
function showCode() {
  const isWritten = message.value || images.addresses.length;
  const next = { text: message.value || (isWritten ? "" : "Hello"), images: images.addresses, answers: [] };
  const asked = isWritten || !exchanges.length ? [...exchanges, next] : exchanges;
  for (const [language, text] of Object.entries(codeOf(requestOf(model.value, 0, asked), form.dataset.base))) {
    document.getElementById(`snippet-${language}`).textContent = text;
  }
}

// What is kept for the next time that the page is shown

const asked = new URLSearchParams(location.search).get("model");

function keep() {
  const values = KEPT.map((name) => {
    const field = form.elements[name];
    return [name, field.type === "checkbox" ? field.checked : field.value];
  });
  const isComparing = !compared.hidden;
  const kept = exchanges.map(({ text, images: addresses, answers, lost }) => ({ text, images: addresses, answers, lost }));
  return store.save({ asked, isComparing, fields: Object.fromEntries(values), images: images.addresses, exchanges: kept });
}

function showCompared(isComparing) {
  compared.hidden = !isComparing;
  compare.textContent = isComparing ? "Remove the second model" : "Add a model to compare";
}

function restore() {
  const kept = store.load();
  if (!kept) return;
  for (const [name, value] of Object.entries(kept.fields)) {
    const field = form.elements[name];
    if (name === "model" && kept.asked !== asked) continue;  // a link chose another one
    if (field.type === "checkbox") field.checked = value;
    else if (!field.options || optionOf(value)) field.value = value;
  }
  showCompared(kept.isComparing);
  exchanges = kept.exchanges;
  for (const answer of exchanges.flatMap(({ answers }) => answers.filter(Boolean))) {
    if (!answer.note && !answer.facts.length) answer.note = "The page was left before the answer was complete.";
  }
  images.set(kept.images);
  exchanges.forEach(show);
}

// What the person does

async function add(files) {
  clearErrors();
  const words = await images.add(files);
  if (words) showError(new Refusal("Not added.", words), model.value);
  settle();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running.size) return;
  if (message.value.trim() || images.addresses.length) sendMessage();
  else message.focus();
});
form.addEventListener("input", () => {
  showAbilities();
  showCode();
});
message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
stop.addEventListener("click", () => running.forEach((controller) => controller.abort()));
part("cancel").addEventListener("click", () => edit(null));
clear.addEventListener("click", () => {
  exchanges = [];
  turns.replaceChildren();
  clearErrors();
  edit(null);
  status.textContent = "";
  settle();
});
compare.addEventListener("click", () => {
  showCompared(compared.hidden);
  if (!compared.hidden) other.focus();
  settle();
});
turns.addEventListener("scroll", () => {
  const isAtEnd = turns.scrollHeight - turns.scrollTop - turns.clientHeight < AT_END;
  isFollowing = isAtEnd || (isFollowing && turns.scrollTop >= lastTop);
  lastTop = turns.scrollTop;
});
turns.addEventListener("click", async ({ target }) => {
  if (!target.matches(".code-block > .copy")) return;
  await navigator.clipboard.writeText(target.parentElement.querySelector("code").textContent);
  status.textContent = "Copied.";
});
part("choose").addEventListener("click", () => part("files").click());
part("files").addEventListener("change", async ({ target }) => {
  await add([...target.files]);
  target.value = "";
});
for (const [kind, dataOf] of [["paste", (event) => event.clipboardData], ["drop", (event) => event.dataTransfer]]) {
  message.addEventListener(kind, (event) => {
    const files = [...dataOf(event).files];
    if (!files.length) return;
    event.preventDefault();
    if (chosen().some(takesImages)) add(files);
    else {
      clearErrors();
      showError(new Refusal("Not added.", `${model.value} takes no images.`), model.value);
    }
  });
}
addEventListener("pagehide", () => keep());

if (/Mac|iPhone|iPad/.test(navigator.platform)) part("hint").textContent = "⌘+Enter sends";
other.append(...[...model.children].map((child) => child.cloneNode(true)));
other.selectedIndex = (model.selectedIndex + 1) % Math.max(1, model.options.length);
part("off").hidden = true;
form.hidden = false;
restore();
settle();
follow();
