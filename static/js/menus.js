// The menus of the bar open and close without this. With it, Escape and a press anywhere else close them too.
"use strict";

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && [...document.querySelectorAll(".menu[open]")].pop(); // one within another first
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

// What the Playground keeps in this tab ends with the session. The Playground itself writes once more when it is left.
document.querySelector('form[action="/logout"]')?.addEventListener("submit", () => {
  addEventListener("pagehide", () => sessionStorage.clear());
});
