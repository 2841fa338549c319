"use strict";

async function show() {
  const response = await fetch("openapi.json");
  const spec = await response.json();
  // Requests go to where this page comes from, whatever a proxy says.
  spec.servers = [{ url: new URL(".", location.href).href.replace(/\/$/, "") }];
  SwaggerUIBundle({
    spec,
    dom_id: "#page",
    tryItOutEnabled: true,
    validatorUrl: null, // By default, the document is sent to another server.
    defaultModelsExpandDepth: 0,
  });
}

show().catch((error) => {
  document.getElementById("page").textContent = `openapi.json cannot be shown: ${error.message}`;
});
