"use strict";

async function show() {
  const response = await fetch("openapi.json");
  const spec = await response.json();
  // Requests go to where this page comes from, whatever a proxy says.
  spec.servers = [{ url: new URL(".", location.href).href.replace(/\/$/, "") }];
  const page = SwaggerUIBundle({
    spec,
    dom_id: "#page",
    tryItOutEnabled: true,
    validatorUrl: null, // By default, the document is sent to another server.
    defaultModelsExpandDepth: 0,
    plugins: [() => ({ wrapComponents: changes })],
  });
  page.specActions.updateUrl(response.url); // The page shows a link to the document.
}

// The command that somebody copies has no token: it runs after `TOKEN=...` in the same shell.
function withoutToken(Curl, { React, fn, getComponent }) {
  const create = React.createElement;
  const header = ["headers", "Authorization"];
  return ({ request }) => {
    const shown = request.hasIn(header) ? request.setIn(header, "Bearer $TOKEN") : request;
    const command = fn
      .requestSnippetGenerator_curl_bash(shown)
      .replace("'Authorization: Bearer $TOKEN'", '"Authorization: Bearer $TOKEN"');
    const code = { language: "bash", className: "curl", canCopy: true };
    return create(
      "div",
      { className: "curl-command" },
      create("h4", null, "Curl"),
      create(getComponent("HighlightCode", true), code, command),
    );
  };
}

// A documented response has one line until somebody opens it, unless it is that of a success.
function onOneLine(Response, { React }) {
  const create = React.createElement;
  return (props) => {
    const [isOpen, setOpen] = React.useState(props.code.startsWith("2"));
    if (isOpen) return create(Response, props);
    const open = { type: "button", className: "open-response", onClick: () => setOpen(true) };
    return create(
      "tr",
      { className: "response" },
      create("td", { className: "response-col_status" }, props.code),
      create(
        "td",
        { className: "response-col_description", colSpan: 2 },
        create("button", open, props.response.get("description")),
      ),
    );
  };
}

// A response with an Error has a link to what the documents say of its number.
function explained(LiveResponse, { React, specSelectors }) {
  const create = React.createElement;
  return (props) => {
    const page = specSelectors.externalDocs()?.get("url");
    const error = /"error":\s*(\d{5})/.exec(props.response.get("text"));
    const link = error && { href: `${page}#error-${error[1]}`, target: "_blank", rel: "noopener" };
    return create(
      React.Fragment,
      null,
      create(LiveResponse, props),
      page && error && create("a", link, `What ${error[1]} means, and what to do`),
    );
  };
}

// The Tab key stays in an open dialog, and Escape closes it.
function keepInDialog(event) {
  const dialog = document.querySelector(".dialog-ux .modal-ux");
  if (dialog === null) return;
  if (event.key === "Escape") dialog.querySelector(".close-modal").click();
  if (event.key !== "Tab") return;
  const items = [...dialog.querySelectorAll("a[href], button, input")];
  const [first, last] = event.shiftKey ? [items.at(-1), items[0]] : [items[0], items.at(-1)];
  if (document.activeElement === last || !dialog.contains(document.activeElement)) {
    event.preventDefault();
    first.focus();
  }
}

const changes = { curl: withoutToken, response: onOneLine, liveResponse: explained };

function useColours(dark) {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
useColours(dark);
dark.addEventListener("change", useColours);
document.addEventListener("keydown", keepInDialog);
show().catch((error) => {
  document.getElementById("page").textContent = `openapi.json cannot be shown: ${error.message}`;
});
