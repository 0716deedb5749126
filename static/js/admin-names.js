// Gives names to controls that Django's own scripts draw without one.

function nameControls() {
  for (const select of document.querySelectorAll("select.admin-autocomplete")) {
    const name = select.getAttribute("aria-label") ?? select.labels[0]?.textContent.trim().replace(/:$/, "");
    const drawn = select.nextElementSibling?.querySelectorAll("[role=combobox], [role=textbox]") ?? [];
    for (const part of drawn) {
      part.removeAttribute("aria-labelledby");
      part.setAttribute("aria-label", name);
    }
  }
  for (const icon of document.querySelectorAll("span.help-tooltip[aria-label]")) icon.setAttribute("role", "img");
}

addEventListener("load", nameControls); // their scripts have run by then
document.addEventListener("formset:added", () => setTimeout(nameControls));
