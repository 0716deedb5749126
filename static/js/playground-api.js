// Sends the Playground's requests to the gateway's own API. The key is made with the first request and is kept in this
// memory alone: a page that is loaded again makes another.

const KEY_ENDED = ["api_key_not_registered", "api_key_expired"];
const MARGIN = 30;  // seconds before its end in which a key is not used any more
const wait = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });

// What went wrong: what it is called, what is said of it, and the API's code where it has one.
export class Refusal extends Error {
  constructor(label, text, code = null) {
    super(text);
    this.label = label;
    this.code = code;
  }
}

export class Api {
  #form;
  #key = null;  // the promise of a key, so that two requests at once make only one
  #keyEnds = 0;  // by the browser's clock, in milliseconds

  constructor(form) {
    this.#form = form;
  }

  async #makeKey() {
    const fields = new URLSearchParams();
    for (const name of ["csrfmiddlewaretoken", "account"]) fields.set(name, this.#form.elements[name].value);
    const response = await fetch(this.#form.dataset.key, { method: "POST", body: fields, redirect: "manual" });
    if (response.type === "opaqueredirect") throw new Refusal("You are signed out.", "Reload the page and sign in.");
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refusal("Could not create a key.", answer.message ?? "Reload the page and try again.");
    this.#keyEnds = Date.now() + (answer.seconds - MARGIN) * 1000;
    return answer.key;
  }

  #currentKey() {
    if (this.#key === null || Date.now() > this.#keyEnds) {
      this.#keyEnds = Infinity;
      this.#key = this.#makeKey();
      this.#key.catch(() => { this.#key = null; });
    }
    return this.#key;
  }

  async #ask(path, key, options = {}) {
    const headers = { "Authorization": `Bearer ${await key}`, "Content-Type": "application/json" };
    return fetch(path, { ...options, headers, credentials: "omit" });
  }

  // A key that another page of the same person, a sign-out elsewhere or the clock has ended is made anew, once.
  async complete(request, signal) {
    for (let tries = 0; ; tries += 1) {
      const key = this.#currentKey();
      const options = { method: "POST", body: JSON.stringify(request), signal };
      const response = await this.#ask("/v1/chat/completions", key, options);
      if (response.ok) return response;
      const { error } = await response.json().catch(() => ({}));
      const code = error?.code ?? "";
      if (tries > 0 || !KEY_ENDED.includes(code)) {
        throw new Refusal(`${response.status} ${code}`.trim(), error?.message ?? "The answer was not the gateway's.", code);
      }
      if (this.#key === key) this.#key = null;
    }
  }

  // An answer that was interrupted is charged a moment later. The list of records has it then; asked for by its id, it
  // would be a failed request of the account until then.
  async recordOf(generation) {
    for (let tries = 0; tries < 20; tries += 1) {
      await wait(500);
      const response = await this.#ask("/v1/generations?limit=20", this.#currentKey());
      const record = response.ok && (await response.json()).data.find((one) => one.generation_id === generation);
      if (record) return record;
    }
    return {};
  }
}

export async function* chunksOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = ""; ;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal("The answer was interrupted.", "Its connection ended early.");
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
