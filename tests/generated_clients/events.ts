declare const process: { argv: string[] };

export const [baseUrl, key] = process.argv.slice(2);

/** Yields the data of each event of a stream. */
export async function* dataOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const lines = (rest + decoder.decode(read.value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.map((each) => each.trim())) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield line.slice("data: ".length);
    }
  }
}

export const names = ["echo", "reasoning-tools"];
