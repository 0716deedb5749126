// Forms that are sent once: `<form data-once>`. A second click would be answered in the place of the first, whose page
// may show what is never shown again.
"use strict";

for (const form of document.querySelectorAll("form[data-once]")) {
  let isSent = false;
  form.addEventListener("submit", (event) => {
    if (isSent) event.preventDefault();
    isSent = true;
  });
  addEventListener("pageshow", () => { isSent = false; });  // the browser's "back" brings the page back as it was
  // Whoever stops the loading stays on the page. Browsers without the Navigation API do not tell.
  globalThis.navigation?.addEventListener("navigateerror", () => { isSent = false; });
}
