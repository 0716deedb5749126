// The images of the message that is being written: pasted, dropped or chosen, as data URLs.

const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MEGABYTE = 1_000_000;
const LARGEST = 5 * MEGABYTE;
const MOST = 8;

const read = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});

export function thumbnail(address, number) {
  return Object.assign(document.createElement("img"), { src: address, alt: `Image ${number}` });
}

// Tells why a file cannot be sent; an empty text if it can.
function fault(file, count) {
  if (!KINDS.includes(file.type)) return `${file.name} is not a PNG, JPEG, WebP or GIF image.`;
  if (file.size > LARGEST) return `${file.name} has ${(file.size / MEGABYTE).toFixed(1)} MB. An image may have ${LARGEST / MEGABYTE} MB.`;
  return count >= MOST ? `A message may have ${MOST} images.` : "";
}

export class Images {
  addresses = [];
  #list;
  #onChange;

  constructor(list, onChange) {
    this.#list = list;
    this.#onChange = onChange;
  }

  set(addresses) {
    this.addresses = [...addresses];
    this.#show();
  }

  // Adds the files that can be sent and returns why others cannot.
  async add(files) {
    const faults = [];
    for (const file of files) {
      const words = fault(file, this.addresses.length);
      if (words) faults.push(words);
      else this.addresses.push(await read(file));
    }
    this.#show();
    return faults.join(" ");
  }

  #show() {
    this.#list.replaceChildren(...this.addresses.map((address, index) => {
      const remove = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Remove" });
      remove.setAttribute("aria-label", `Remove image ${index + 1}`);
      remove.addEventListener("click", () => this.set(this.addresses.toSpliced(index, 1)));
      const item = document.createElement("li");
      item.append(thumbnail(address, index + 1), remove);
      return item;
    }));
    this.#onChange();
  }
}
