// Buttons that copy: `<button type="button" data-copy="ID" hidden>Copy</button>` copies the text of the element of that
// id. They stay hidden where there is no clipboard to copy to; without JavaScript the text is there to be selected.
"use strict";

const copyKey = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘C" : "Ctrl+C";
const announced = document.createElement("span"); // for screen readers: a button's own new text is not announced
announced.setAttribute("aria-live", "polite");
announced.className = "visually-hidden";
document.body.append(announced);

for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source || !navigator.clipboard) continue;
  const label = button.textContent;
  const say = (words) => { button.textContent = announced.textContent = words; };
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      say("Copied");
    } catch {
      getSelection().selectAllChildren(source);
      say(`Selected: press ${copyKey}`);
    }
    setTimeout(() => { button.textContent = label; announced.textContent = ""; }, 2000);
  });
}
