// Renders Markdown as models write it. Every character of the text ends up in a text node, or is
// dropped as a mark; the text never becomes markup.
//
// Parsing is linear in the text for every input: a mark without a partner is searched for only
// once.

import { make, copyButton } from './dom.js';

const deepest = 12; // nesting depth of marks
const longest = 1000; // maximum length of a line that is parsed; longer ones are plain text
const fence = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const heading = /^ {0,3}(#{1,6})\s+/;
const rule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const bullet = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
const quote = /^ {0,3}> ?/;
const delimiter = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// blocks splits text from an offset into blocks {kind, from, to, lines}. A line is the range {from,
// to} without the block's own marks.
export function blocks(text, start = 0) {
  const found = [];
  let open = null; // the block that continues
  const begin = (kind, from, more = {}) => { open = { kind, from, to: from, lines: [], ...more }; found.push(open); };
  for (let from = start; from < text.length;) {
    let to = text.indexOf('\n', from);
    if (to < 0) to = text.length;
    const line = text.slice(from, to);
    const take = (skip = 0) => { open.lines.push({ from: from + skip, to }); };
    let match;
    const whole = line.length <= longest ? line : '';
    if (open?.kind === 'code') {
      match = fence.exec(whole);
      if (match && match[1].startsWith(open.mark) && !match[2]) {
        open.to = to;
        open = null;
        from = to + 1;
        continue;
      }
      take();
    } else if (!line.trim()) {
      open = null;
    } else if ((match = fence.exec(whole))) {
      begin('code', from, { mark: match[1], language: match[2] });
    } else if (open?.kind === 'table') {
      take();
    } else if (open?.kind === 'paragraph' && open.lines.length === 1 && line.includes('|') && delimiter.test(whole)
        && text.slice(open.lines[0].from, open.lines[0].to).includes('|')) {
      open.kind = 'table';
    } else if ((match = heading.exec(line))) {
      begin('heading', from, { level: match[1].length });
      take(match[0].length);
    } else if (rule.test(whole)) {
      begin('rule', from);
    } else if ((match = bullet.exec(line))) {
      if (open?.kind !== 'list') begin('list', from);
      open.lines.push({ from: from + match[0].length, to, indent: match[1].length, mark: match[2] });
    } else if ((match = quote.exec(line))) {
      if (open?.kind !== 'quote') begin('quote', from);
      take(match[0].length);
    } else {
      if (!['paragraph', 'list', 'quote'].includes(open?.kind)) begin('paragraph', from);
      take(open.kind === 'list' ? line.length - line.trimStart().length : 0);
    }
    if (open) {
      open.to = to;
      if (open.kind === 'heading' || open.kind === 'rule') open = null;
    }
    from = to + 1;
  }
  return found;
}

// render returns a block's element, and the last element that received text, to which more text of
// an open block can be appended. put(parent, from, to) appends a range of the text to an element,
// in order.
export function render(text, block, put) {
  let sink;
  const words = (parent, lines) => {
    sink = parent;
    lines.forEach((line, i) => {
      if (i > 0) parent.append('\n');
      inline(text, line.from, line.to, parent, put);
    });
    parent.dir = 'auto'; // last, since the browser would rescan the text at each insertion
    return parent;
  };
  const element = {
    paragraph: () => words(make('p'), block.lines),
    heading: () => words(make(`h${Math.min(block.level + 2, 6)}`), block.lines),
    rule: () => make('hr'),
    quote: () => words(make('blockquote'), block.lines),
    list: () => list(block.lines, words),
    table: () => table(text, block.lines, words),
    code: () => {
      const code = make('code', { dir: 'ltr' });
      sink = code;
      for (const line of block.lines) {
        put(code, line.from, line.to);
        code.append('\n');
      }
      const head = make('div', { class: 'title' }, make('span', {}, block.language || 'text'), copyButton(() => code.textContent));
      return make('figure', { class: 'code' }, head, make('pre', { tabindex: '0' }, code));
    },
  }[block.kind]();
  return { element, sink: sink ?? element };
}

// list nests items by their indentation.
function list(lines, words) {
  const top = make('div');
  const levels = [{ indent: -1, parent: top }]; // parent: contains the lists of this level
  let item = null;
  for (let i = 0; i < lines.length;) {
    const { indent, mark } = lines[i];
    let next = i + 1;
    while (next < lines.length && lines[next].mark === undefined) next++;
    while (levels.length > 1 && indent < levels.at(-1).indent) levels.pop();
    if (indent > levels.at(-1).indent + (levels.length > 1 ? 1 : 0) && levels.length < deepest) {
      levels.push({ indent, parent: item ?? top, list: null });
    }
    const level = levels.at(-1);
    const ordered = !/[-*+]/.test(mark);
    if (level.list?.tagName !== (ordered ? 'OL' : 'UL')) {
      level.list = ordered ? make('ol', { start: parseInt(mark, 10) }) : make('ul');
      level.parent.append(level.list);
    }
    item = make('li');
    level.list.append(item);
    words(item, lines.slice(i, next));
    i = next;
  }
  return top;
}

function table(text, lines, words) {
  const body = make('tbody');
  const head = make('thead');
  lines.forEach((line, i) => {
    const row = make('tr');
    for (const cell of cells(text, line)) row.append(words(make(i ? 'td' : 'th'), [cell]));
    (i ? body : head).append(row);
  });
  return make('div', { class: 'scrolls', tabindex: '0' }, make('table', {}, head, body));
}

function cells(text, { from, to }) {
  const found = [];
  let begin = from + (text.slice(from, to).match(/^\s*\|/)?.[0].length ?? 0);
  for (let at = begin; at <= to; at++) {
    if (at < to && (text[at] !== '|' || text[at - 1] === '\\')) continue;
    const cell = text.slice(begin, at);
    if (at < to || cell.trim()) found.push({ from: begin + cell.length - cell.trimStart().length, to: at - (cell.length - cell.trimEnd().length) });
    begin = at + 1;
  }
  return found.map((cell) => ({ from: cell.from, to: Math.max(cell.from, cell.to) }));
}

const marks = { '*': 'em', _: 'em', '**': 'strong', __: 'strong', '~~': 'del' };
const special = /\\[!-/:-@[-`{-~]|`+|\*\*?|__?|~~|!?\[|\]|https?:\/\/[^\s<>"'`*\])]+/g;
const safeLink = /^(https?:\/\/|mailto:)/i;

// inline renders a line: code, emphasis, links.
function inline(text, from, to, root, put) {
  const frames = [{ parent: root }]; // open elements, the innermost last
  const unclosed = new Set(); // runs of ` without a partner further on
  const top = () => frames.at(-1);
  const piece = (a, b) => { if (b > a) put(top().parent, a, b); };
  // A frame that is never closed becomes text again: its mark and its contents.
  const undo = () => {
    const frame = frames.pop();
    const inside = [...frame.parent.childNodes];
    frame.parent.replaceWith(...frame.literal.childNodes, ...inside);
  };
  const openFrame = (mark, element, a, b) => {
    const literal = make('span');
    put(literal, a, b);
    top().parent.append(element);
    frames.push({ mark, parent: element, literal, from: b });
  };
  const line = text.slice(from, to);
  const word = /[\p{L}\p{N}]/u;
  let at = 0;
  special.lastIndex = 0;
  for (let match; (match = special.exec(line));) {
    const [mark] = match;
    const begin = match.index;
    const end = begin + mark.length;
    piece(from + at, from + begin);
    at = end;
    const literally = () => piece(from + begin, from + end);
    if (mark[0] === '\\') {
      piece(from + begin + 1, from + end);
    } else if (mark[0] === '`') {
      const close = unclosed.has(mark.length) ? -1 : closing(line, mark, end);
      if (close < 0) {
        unclosed.add(mark.length);
        literally();
        continue;
      }
      const code = make('code', { dir: 'ltr' });
      put(code, from + end, from + close);
      top().parent.append(code);
      at = close + mark.length;
    } else if (mark[0] === 'h') {
      at = end;
      while ('.,;:!?'.includes(line[at - 1])) at--;
      const a = link(line.slice(begin, at));
      put(a, from + begin, from + at);
      top().parent.append(a);
    } else if (mark === '[' || mark === '![') {
      if (frames.length < deepest) openFrame('[', make('a'), from + begin, from + end);
      else literally();
    } else if (mark === ']') {
      const i = frames.findLastIndex((frame) => frame.mark === '[');
      const target = i > 0 && /^\(([^\s()]{1,2000})(?:\s+"[^"]{0,500}")?\)/.exec(line.slice(end, end + 2600));
      if (!target || !safeLink.test(target[1])) {
        if (i > 0) while (frames.length > i) undo();
        literally();
        continue;
      }
      while (frames.length > i + 1) undo();
      Object.assign(top().parent, linking(target[1]));
      frames.pop();
      at = end + target[0].length;
    } else {
      const before = line[begin - 1] ?? ' ';
      const after = line[end] ?? ' ';
      const i = frames.findLastIndex((frame) => frame.mark === mark);
      const inWord = mark[0] === '_' && word.test(before) && word.test(after);
      if (i > 0 && /\S/.test(before) && !inWord && from + begin > frames[i].from) {
        while (frames.length > i + 1) undo();
        frames.pop();
      } else if (/\S/.test(after) && !inWord && i < 0 && frames.length < deepest) {
        openFrame(mark, make(marks[mark]), from + begin, from + end);
      } else {
        literally();
      }
    }
    special.lastIndex = at;
  }
  piece(from + at, to);
  while (frames.length > 1) undo();
}

// closing finds the next run of ` as long as mark.
function closing(line, mark, from) {
  for (let at = from; (at = line.indexOf(mark, at)) >= 0;) {
    let end = at;
    while (line[end] === '`') end++;
    if (end - at === mark.length) return at;
    at = end;
  }
  return -1;
}

const linking = (href) => ({ href, rel: 'noopener noreferrer nofollow', target: '_blank' });
const link = (url) => make('a', linking(url));
