// Shows the turns of a conversation. What a model says is only ever put in as text, or by the Markdown view.

const copyOf = (template) => document.getElementById(`playground-${template}`).content.firstElementChild.cloneNode(true);
const exact = { maximumFractionDigits: 10 };
const rounded = { maximumSignificantDigits: 3 };
const number = (value, unit, options) =>
  (value === undefined ? "unknown" : `${new Intl.NumberFormat("en", options).format(value)} ${unit}`.trim());

// Shows a message of the person, with a place for its answers.
export function showExchange({ text, images, lost }, thumbnail) {
  const view = copyOf("exchange");
  view.querySelector(".said").textContent = text;
  view.querySelector(".images").append(...images.map((address, index) => thumbnail(address, index + 1)));
  if (lost) view.querySelector(".lost").textContent = `${lost} image${lost > 1 ? "s" : ""} not kept`;
  return view;
}

// Returns the facts of an answer as labels and texts.
export function factsOf({ model, usage, energy, carbon, adjusted, first, seconds }) {
  const facts = [];
  if (usage) {
    facts.push(
      ["Route", model],
      ["Tokens", `${number(usage.prompt_tokens, "in")}, ${number(usage.completion_tokens, "out")}`],
      ["Cost", number(usage.cost, usage.currency, exact)],
      ["Energy", number(energy, "Wh", rounded)],
      ["Carbon", number(carbon, "g CO₂e", rounded)],
      ["Balance after", number(usage.remaining_balance, usage.currency, exact)],
    );
  }
  if (adjusted) facts.push(["Parameters adjusted", adjusted]);
  if (first) facts.push(["First token", number(first, "s", rounded)]);
  if (seconds) facts.push(["Time", number(seconds, "s", rounded)]);
  return facts;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // not yet whole, or never JSON
  }
}

// Shows an answer, `{model, text, reasoning, calls, note, generation, facts}`, to which pieces can be added.
export class AnswerView {
  #answer;
  #markdown;
  #part;

  constructor(answer, markdownInto, records) {
    this.#answer = answer;
    this.records = records;
    this.element = copyOf("answer");
    this.#part = (name) => this.element.querySelector(`.${name}`);
    this.#part("answer-model").textContent = answer.model;
    this.#markdown = markdownInto(this.#part("markdown"));
    this.#markdown.append(answer.text);
    this.#showReasoning(answer.reasoning);
    this.stop = this.#part("stop");
    this.retry = this.#part("retry");
    this.#part("show-raw").addEventListener("click", () => this.#toggleRaw());
  }

  add({ content, refusal, reasoning_content: reasoning, tool_calls: calls }) {
    const text = (content ?? "") + (refusal ?? "");
    if (text) {
      this.#answer.text += text;
      this.#markdown.append(text);
      if (!this.#part("raw").hidden) this.#part("raw").append(text);
    }
    if (reasoning) {
      this.#answer.reasoning += reasoning;
      this.#showReasoning(reasoning);
    }
    for (const [position, call] of (calls ?? []).entries()) {
      const known = this.#answer.calls[call.index ?? position] ??= { name: "", arguments: "" };
      known.name += call.function?.name ?? "";
      known.arguments += call.function?.arguments ?? "";
    }
    if (calls) this.#part("calls-status").textContent = "Calling a tool…";
  }

  finish() {
    const { text, calls, note, generation, facts } = this.#answer;
    this.#markdown.finish();
    this.#part("calls-status").textContent = "";
    this.#part("calls").replaceChildren(...calls.filter(Boolean).map((call) => {
      const view = copyOf("call");
      view.querySelector("code").textContent = call.name;
      view.querySelector("pre").textContent = pretty(call.arguments) || "no arguments";
      view.querySelector("pre").setAttribute("aria-label", `Arguments of ${call.name}`);
      return view;
    }));
    this.#part("show-raw").hidden = !text;
    this.#part("note").textContent = note;
    this.#part("result").hidden = !note && !generation;
    this.#part("record").hidden = !generation;
    if (generation) this.#part("record").href = this.records + generation;
    this.#part("facts").replaceChildren(...facts.map(([label, value]) => {
      const fact = document.createElement("div");
      fact.append(document.createElement("dt"), document.createElement("dd"));
      fact.firstChild.textContent = label;
      fact.lastChild.textContent = value;
      return fact;
    }));
  }

  #showReasoning(text) {
    if (text) this.#part("reasoning").hidden = false;
    this.#part("reasoning").querySelector("p").append(text);
  }

  #toggleRaw() {
    const raw = this.#part("raw");
    raw.hidden = !raw.hidden;
    raw.textContent = raw.hidden ? "" : this.#answer.text;
    this.#part("markdown").hidden = !raw.hidden;
    this.#part("show-raw").setAttribute("aria-pressed", String(!raw.hidden));
  }
}
