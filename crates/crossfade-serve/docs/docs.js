// A page to try the interface: a form for every route of /openapi.json.
const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
};

const described = await (await fetch("openapi.json")).json();
const resolve = (schema) => (schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, key) => at[key], described) : schema);

const fieldTable = (schema) => {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const type = [field.type ?? "text"].flat().filter((kind) => kind !== "null").join(" or ");
    return element("tr", {}, element("td", {}, element("code", { textContent: name })), element("td", { textContent: type }),
      element("td", { textContent: field.description ?? "" }));
  });
  return element("details", {}, element("summary", { textContent: "Fields" }), element("table", {}, ...rows));
};

const show = async (answer, place) => {
  const kind = answer.headers.get("content-type") ?? "";
  place.replaceChildren(element("p", { textContent: `${answer.status} ${answer.statusText}` }));
  if (kind.startsWith("image/")) {
    place.append(element("img", { alt: "the answer", src: URL.createObjectURL(await answer.blob()) }));
  } else if (kind.startsWith("text/event-stream")) {
    const text = element("pre");
    place.append(text);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) text.textContent += part.value;
  } else {
    const body = await answer.text();
    let text = body;
    try { text = JSON.stringify(JSON.parse(body), null, 2); } catch { /* not JSON: shown as it is */ }
    place.append(element("pre", { textContent: text }));
  }
};

const route = (path, method, operation) => {
  const inputs = (operation.parameters ?? []).map((parameter) => {
    const input = element("input", { name: parameter.name });
    return { parameter, input, label: element("label", {}, `${parameter.name}: ${parameter.description ?? ""} `, input) };
  });
  const content = operation.requestBody?.content;
  const schema = content ? resolve(content["application/json"].schema) : null;
  const start = path === "/v1/images/generations" ? { n: 1, seed: 7 } : {};
  const body = content ? element("textarea", { ariaLabel: "JSON body", value: JSON.stringify(start, null, 2) }) : null;
  const picture = schema?.properties?.image ? element("input", { type: "file", accept: "image/*" }) : null;
  const result = element("div", { ariaLive: "polite" });
  const send = async () => {
    // Relative: behind a proxy the server may be known under a path.
    let address = path.replace(/^\//, "");
    const query = new URLSearchParams();
    for (const { parameter, input } of inputs) {
      if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value !== "") query.set(parameter.name, input.value);
    }
    if ([...query].length > 0) address += `?${query}`;
    const headers = {};
    const token = document.getElementById("token").value;
    if (token) headers.authorization = `Bearer ${token}`;
    let data;
    if (body && picture?.files.length) {
      data = new FormData();
      for (const [name, value] of Object.entries(JSON.parse(body.value || "{}"))) data.set(name, String(value));
      data.set("image", picture.files[0]);
    } else if (body) {
      headers["content-type"] = "application/json";
      data = body.value;
    }
    result.replaceChildren(element("p", { textContent: "…" }));
    try {
      await show(await fetch(address, { method: method.toUpperCase(), headers, body: data }), result);
    } catch (problem) {
      result.replaceChildren(element("p", { textContent: String(problem) }));
    }
  };
  return element("details", {},
    element("summary", {}, element("span", { className: "method", textContent: method.toUpperCase() }),
      element("code", { textContent: path }), ` ${operation.summary ?? operation.description ?? ""}`),
    ...inputs.map(({ label }) => label),
    body ? element("label", {}, "Body as JSON ", body) : null,
    picture ? element("label", {}, "Picture, sent as a form ", picture) : null,
    schema ? fieldTable(schema) : null,
    element("button", { type: "button", textContent: "Send", onclick: send }),
    result);
};

const groups = new Map();
for (const [path, methods] of Object.entries(described.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const tag = operation.tags?.[0] ?? "other";
    groups.set(tag, [...(groups.get(tag) ?? []), route(path, method, operation)]);
  }
}
document.getElementById("routes").replaceChildren(
  ...[...groups].flatMap(([tag, routes]) => [element("h2", { textContent: tag }), ...routes]));
