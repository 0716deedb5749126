// Forms that need a passkey: `<form data-passkey="get|create" data-options="JSON">` with an input `credential`. The
// browser asks for the passkey when the form is sent; its answer is sent as JSON. `data-from` is an address that has the
// options, for a form whose page is open for longer than a challenge is valid.
"use strict";

const toBytes = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const toText = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const readable = (options) => {
  const copy = { ...options, challenge: toBytes(options.challenge) };
  if (copy.user) copy.user = { ...copy.user, id: toBytes(copy.user.id) };
  for (const list of ["allowCredentials", "excludeCredentials"]) {
    copy[list] = (copy[list] ?? []).map((known) => ({ ...known, id: toBytes(known.id) }));
  }
  return copy;
};

const sendable = (found) => {
  const { id, rawId, type, response, authenticatorAttachment } = found;
  const parts = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (response[name]) parts[name] = toText(response[name]);
  }
  if (response.getTransports) parts.transports = response.getTransports();
  return { id, rawId: toText(rawId), type, authenticatorAttachment, response: parts,
    clientExtensionResults: found.getClientExtensionResults() };
};

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const alert = form.querySelector("[role=alert]");
  if (!window.PublicKeyCredential) {
    alert.textContent = "This browser has no passkeys, or this page was not opened by https://.";
    alert.hidden = false;
    form.querySelector("button").disabled = true;
    continue;
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    alert.hidden = true;
    try {
      const options = form.dataset.from
        ? await (await fetch(form.dataset.from)).json()
        : JSON.parse(form.dataset.options);
      const found = await navigator.credentials[form.dataset.passkey]({ publicKey: readable(options.publicKey) });
      form.elements.credential.value = JSON.stringify(sendable(found));
      form.submit();
    } catch (error) {
      alert.textContent = `No passkey was used (${error.name}). Try again.`;
      alert.hidden = false;
    }
  });
}
