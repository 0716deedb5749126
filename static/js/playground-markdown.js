// Renders a model's Markdown. Everything is built from elements and text nodes, never from HTML, so an answer cannot bring
// markup of its own. A view takes an answer in pieces and builds only its last block again.

const DEEPEST = 12;  // levels of lists and quotes; what is deeper is shown as text
const LONGEST = 20000;  // characters of a last block that is built again with each piece; a longer one is cut
const MOST_OPEN = 100;  // marks that wait for their end
const COLUMNS = 50;
const LINK = /^(?:https?:\/\/|mailto:)[^\s]/i;

// No part of these can take what the next one could: each reads a line once, whatever is in it.
const FENCE = /^( {0,3})(`{3,}|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: |\t|$)/;
const DIVIDER = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$/;
const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

// Text within a block

const TOKEN = new RegExp([
  "\\\\([!-/:-@[-`{-~])",  // 1: an escaped character
  "(`+)",  // 2
  "(!?\\[)",  // 3
  "\\]\\([ \\t]*<?([^\\s()<>]{0,2000}(?:\\([^\\s()<>]{0,2000}\\)[^\\s()<>]{0,2000}){0,9})>?(?:[ \\t]+\"[^\"]{0,500}\")?[ \\t]*\\)",  // 4
  "<((?:https?://|mailto:)[^\\s<>]{1,2000})>",  // 5
  "(https?://[^\\s<>\"'`|\\\\]{1,2000})",  // 6
  "(\\*+|_+|~~)",  // 7
  "(<br ?/?>| {2,9}\\n|\\\\\\n)",  // 8
].join("|"), "g");

function linkTo(address, ...children) {
  return Object.assign(element("a", ...children), { href: address, rel: "noopener noreferrer", target: "_blank" });
}

// Moves what stands after an opening mark into an element, which takes the mark's place.
function enclose(opener, around) {
  while (opener.nextSibling) around.append(opener.nextSibling);
  opener.replaceWith(around);
}

export function inline(text) {
  const out = document.createDocumentFragment();
  const open = [];  // the marks that have no end yet: [text node, mark, length]
  const unclosed = new Set();  // lengths of backticks that do not occur again
  const say = (words) => { if (words) out.append(words); };

  function emphasise(run, before, after) {
    let left = run.length;
    const isWithinWord = run[0] === "_" && /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
    if (/\S/.test(before) && !isWithinWord) {
      for (let at = open.length - 1; at >= 0 && left > 0; at -= 1) {
        const [node, mark, length] = open[at];
        if (mark !== run[0] || length > left) continue;
        enclose(node, element(mark === "~" ? "del" : length === 2 ? "strong" : "em"));
        open.length = at;
        left -= length;
      }
    }
    const opens = /\S/.test(after) && !isWithinWord;
    while (left > 0) {
      const length = opens ? Math.min(left > 3 ? left : 2, left) : left;
      const node = document.createTextNode(run[0].repeat(length));
      out.append(node);
      if (opens && length <= 2 && open.length < MOST_OPEN) open.push([node, run[0], length]);
      left -= length;
    }
  }

  function closeLink(whole, address) {
    const at = open.findLastIndex(([, mark]) => mark === "[");
    if (at < 0 || !LINK.test(address)) return say(whole);
    const [node] = open[at];
    enclose(node, linkTo(address));
    open.splice(0, open.length, ...open.slice(0, at).filter(([, mark]) => mark !== "["));  // a link has no link in it
  }

  TOKEN.lastIndex = 0;
  let end = 0;
  for (let found; (found = TOKEN.exec(text)); end = TOKEN.lastIndex) {
    const [whole, escaped, ticks, bracket, target, angled, bare, run, lineBreak] = found;
    const { index } = found;
    const next = TOKEN.lastIndex;
    say(text.slice(end, index));
    if (escaped) say(escaped);
    else if (ticks) {
      const close = unclosed.has(ticks.length) ? -1 : closingTicks(text, next, ticks);
      if (close < 0) {
        unclosed.add(ticks.length);
        say(ticks);
      } else {
        const code = text.slice(next, close).replaceAll("\n", " ");
        const isPadded = code.startsWith(" ") && code.endsWith(" ") && code.trim();
        out.append(element("code", isPadded ? code.slice(1, -1) : code));
        TOKEN.lastIndex = close + ticks.length;
      }
    } else if (bracket) {
      const node = document.createTextNode(bracket);
      out.append(node);
      if (open.length < MOST_OPEN) open.push([node, "[", 1]);
    } else if (target !== undefined) closeLink(whole, target);
    else if (angled) out.append(linkTo(angled, angled));
    else if (bare) {
      const address = bare.replace(/[)\].,:;!?*_~]{1,20}$/, "");
      const isLink = LINK.test(address) && !/[\p{L}\p{N}]/u.test(text[index - 1] ?? "");
      out.append(isLink ? linkTo(address, address) : bare);
      if (isLink) TOKEN.lastIndex = index + address.length;
    } else if (lineBreak) out.append(element("br"));
    else emphasise(run, text[index - 1] ?? " ", text[next] ?? " ");
  }
  say(text.slice(end));
  return out;
}

function closingTicks(text, from, ticks) {
  for (let at = text.indexOf(ticks, from), end; at >= 0; at = text.indexOf(ticks, end)) {
    for (end = at; text[end] === "`";) end += 1;
    if (end - at === ticks.length) return at;
  }
  return -1;
}

// Blocks. Each function takes all lines and the first of its block, and returns [the block's element, the line after it].

// The third value is what goes on with a code block that has no end yet.
function fenced(lines, at) {
  const [, indent, ticks, info] = FENCE.exec(lines[at]);
  const language = info.trim().split(/\s/)[0].slice(0, 30);
  const code = element("code");
  const pre = Object.assign(element("pre", code), { tabIndex: 0 });
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language ? `Code in ${language}` : "Code");
  const made = Object.assign(element("div", pre), { className: "code-block" });
  if (navigator.clipboard) {
    made.append(Object.assign(element("button", "Copy"), { type: "button", className: "quiet copy" }));
  }
  const isEnd = (line) => {
    const text = line.trim();
    return text.length >= ticks.length && indentOf(line) < 4 && text === ticks[0].repeat(text.length);
  };
  const write = (line) => code.append(line.slice(Math.min(indent.length, indentOf(line))));
  let end = at + 1;
  for (; end < lines.length && !isEnd(lines[end]); end += 1) write(`${lines[end]}\n`);
  return [made, end + 1, end < lines.length ? null : { isEnd, write }];
}

function quote(lines, at, depth) {
  const inner = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    if (QUOTE.test(lines[end])) inner.push(lines[end].replace(/^ {0,3}> ?/, ""));
    else if (isBlank(lines[end]) || starts(lines, end)) break;
    else inner.push(lines[end]);
  }
  return [blocks(inner, depth + 1, element("blockquote")), end];
}

function list(lines, at, depth) {
  const [, indent, first] = ITEM.exec(lines[at]);
  const isNumbered = /\d/.test(first);
  const made = element(isNumbered ? "ol" : "ul");
  if (isNumbered && parseInt(first, 10) !== 1) made.start = parseInt(first, 10);
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length > indent.length + 1 || item[2].at(-1) !== first.at(-1) || RULE.test(lines[end])) break;
    const own = item[1].length + item[2].length + 1;  // where the item's text begins
    const inner = [lines[end].slice(own)];
    let hasGap = false;
    for (end += 1; end < lines.length; end += 1) {
      const line = lines[end];
      const depthOfLine = indentOf(line);
      if (isBlank(line)) hasGap = true;
      else if (depthOfLine < item[1].length + 2 && (hasGap || starts(lines, end))) break;
      else hasGap = false;
      inner.push(line.slice(Math.min(own, depthOfLine)));
    }
    made.append(blocks(inner, depth + 1, element("li")));
  }
  return [made, end];
}

function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, "").replace(/\|$/, "").match(/(?:\\.|[^|\\]|\\$)*(?:\||$)/g) ?? [];
  return cells.slice(0, Math.min(COLUMNS, cells.length - 1) || 1).map((cell) => cell.replace(/\|$/, "").trim().replaceAll("\\|", "|"));
}

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-")
  && DIVIDER.test(lines[at + 1].trim());

function table(lines, at) {
  const head = cellsOf(lines[at]);
  const sides = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "centred" : "number") : ""));
  const row = (cells, name) => element("tr", ...head.map((_, column) => {
    const cell = element(name, inline(cells[column] ?? ""));
    if (sides[column]) cell.className = sides[column];
    return cell;
  }));
  const body = element("tbody");
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) body.append(row(cellsOf(lines[end]), "td"));
  const around = Object.assign(element("div", element("table", element("thead", row(head, "th")), body)), { tabIndex: 0 });
  around.className = "scroll";
  around.setAttribute("role", "region");
  around.setAttribute("aria-label", "Table");
  return [around, end];
}

function heading(lines, at) {
  const level = HEADING.exec(lines[at])[1].length;
  const text = lines[at].replace(HEADING, "").trim().replace(/(?:^|[ \t])#{1,6}$/, "");
  const made = element(`h${Math.min(6, level + 3)}`, inline(text));  // below the heading of the answer
  made.className = `heading-${Math.min(4, level)}`;
  return [made, at + 1];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !starts(lines, end)) end += 1;
  return [element("p", inline(lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd())), end];
}

// Tells whether a line ends the paragraph above it.
function starts(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) || isTable(lines, at);
}

function block(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fenced(lines, at);
  if (HEADING.test(line)) return heading(lines, at);
  if (RULE.test(line)) return [element("hr"), at + 1];
  if (isTable(lines, at)) return table(lines, at);
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  return paragraph(lines, at);
}

function blocks(lines, depth, into) {
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) at += 1;
    else {
      const [node, end] = block(lines, at, depth);
      into.append(node);
      at = end;
    }
  }
  return into;
}

// Shows a text that arrives in pieces. Blocks that have ended stay as they are, with what is selected in them.
export class MarkdownView {
  #root;
  #rest = "";  // what is not in a finished block
  #last = [];  // the nodes of that
  #fence = null;  // the code block that has no end yet
  #frame = null;
  #onRender;

  constructor(root, onRender) {
    this.#root = root;
    this.#onRender = onRender;
  }

  append(text) {
    this.#rest += text;
    this.#frame ??= requestAnimationFrame(() => this.#render(false));
  }

  finish() {
    cancelAnimationFrame(this.#frame);
    this.#render(true);
  }

  #render(isWhole) {
    this.#frame = null;
    for (const node of this.#last) node.remove();
    this.#last = [];
    const lines = this.#rest.replaceAll("\r\n", "\n").split("\n");
    if (isWhole && lines.at(-1) === "") lines.pop();
    const whole = isWhole ? lines.length : lines.length - 1;  // the lines of which nothing more comes
    let at = 0;
    let begin = 0;  // of what is built again next time
    while (at < lines.length) {
      if (this.#fence) {
        const line = lines[at];
        if (at === whole && line.length < LONGEST) break;
        if (this.#fence.isEnd(line)) this.#fence = null;
        else this.#fence.write(at < whole ? `${line}\n` : line);
        begin = at += 1;
      } else if (isBlank(lines[at])) at += 1;
      else {
        if (at < whole) {  // another block has begun for certain, so the one before has ended
          this.#last = [];
          begin = at;
        }
        const isFence = at < whole && FENCE.test(lines[at]);
        const [node, end, open] = isFence ? fenced([lines[at]], 0) : block(lines, at, 0);
        this.#root.append(node);
        if (isFence) {
          this.#fence = open;
          begin = at += 1;
        } else {
          this.#last.push(node);
          at = end;
        }
      }
    }
    this.#rest = lines.slice(begin).join("\n");
    if (this.#rest.length > LONGEST && !this.#fence && !isWhole) {
      const cut = Math.max(begin + 1, lines.length - 1);
      for (const node of this.#last) node.remove();
      blocks(lines.slice(begin, cut), 0, this.#root);
      this.#last = [];
      this.#rest = lines.slice(cut).join("\n");
    }
    this.#onRender();
  }
}
