// Writes a request as code. Images are shortened.

const LONGEST = 80;  // characters of an image's address
const shortened = (name, value) => (name === "url" && value.length > LONGEST ? `${value.slice(0, value.indexOf(",") + 1)}…` : value);
const json = (value) => JSON.stringify(value, shortened);

// Returns the curl, Python and Node code of a request.
export function codeOf(request, base) {
  const messages = (quote, indent) => request.messages.map(({ role, content }) =>
    `\n${indent}  {${quote}role${quote}: ${json(role)}, ${quote}content${quote}: ${json(content)}},`).join("");
  const fields = (indent, assign, quote, isTrue) => Object.entries(request).map(([name, value]) => {
    const shown = name === "messages" ? `[${messages(quote, indent)}\n${indent}]` : value === true ? isTrue : json(value);
    return `\n${indent}${name}${assign}${shown},`;
  }).join("");
  // Each message on a line of its own.
  const body = JSON.stringify(request, shortened, 2).replace(/\{\s+("role": .*),\s+("content": ".*)\s+\}/g, "{$1, $2}");
  return {
    curl: `curl ${request.stream ? "-N " : ""}${base}/chat/completions \\
  -H "Authorization: Bearer sk-gw-…" \\
  -H "Content-Type: application/json" \\
  -d '${body.replaceAll("'", "'\\''")}'`,
    python: `# pip install openai
from openai import OpenAI

client = OpenAI(base_url="${base}", api_key="sk-gw-…")
answer = client.chat.completions.create(${fields("    ", "=", '"', "True")}
)
${request.stream ? `for chunk in answer:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)` : "print(answer.choices[0].message.content)"}`,
    node: `// npm install openai
import OpenAI from "openai";

const client = new OpenAI({baseURL: "${base}", apiKey: "sk-gw-…"});
const answer = await client.chat.completions.create({${fields("  ", ": ", "", "true")}
});
${request.stream ? `for await (const chunk of answer) {
  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");
}` : "console.log(answer.choices[0].message.content);"}`,
  };
}
