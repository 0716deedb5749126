// Keeps the conversation in this tab's storage, so that it survives a reload and Back: for one user and account. Another
// user of the browser never sees it, because the page removes what is not the user's own.

const PREFIX = "playground/";

export class Store {
  #name;

  constructor(user, account) {
    const own = `${PREFIX}${user}/`;
    this.#name = own + account;
    for (const name of Object.keys(sessionStorage)) {
      if (name.startsWith(PREFIX) && !name.startsWith(own)) sessionStorage.removeItem(name);
    }
  }

  load() {
    try {
      return JSON.parse(sessionStorage.getItem(this.#name));
    } catch {
      return null;
    }
  }

  // Returns what could not be kept, in words.
  save(state) {
    if (this.#write(state)) return "";
    const exchanges = state.exchanges.map((one) => ({ ...one, images: [], lost: one.images.length || one.lost }));
    if (this.#write({ ...state, exchanges, images: [] })) {
      return "The images are too large for this browser's storage: a reload keeps the text only.";
    }
    this.clear();
    return "The conversation is too long for this browser's storage: it is lost when the page is reloaded.";
  }

  clear() {
    sessionStorage.removeItem(this.#name);
  }

  #write(state) {
    try {
      sessionStorage.setItem(this.#name, JSON.stringify(state));
      return true;
    } catch {
      return false;
    }
  }
}
