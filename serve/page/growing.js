// The element of a text that grows: Markdown, or words as they are.
//
// What is shown once stays: blocks that are whole are not made again, and the last one, which
// still grows, is made anew only when it has grown by a sixteenth; between, text is added to its
// end. So the work is in proportion to the text, however long it is.

import { make } from './dom.js';
import { blocks, render } from './markdown.js';
import { likelihood } from './tokens.js';

const small = 400; // a block this short is made anew each time

export class Growing {
  #tokens;
  #plain;
  #whole = 0; // text up to here is in blocks that stay
  #shown = 0; // and up to here is to be seen
  #made = 0; // length of the open block when it was made last
  #open = null; // its element
  #sink = null; // where its text ends

  constructor(tokens, plain = false) {
    this.#tokens = tokens;
    this.#plain = plain;
    this.element = make('div', { class: plain ? 'text plain' : 'text', dir: plain ? 'auto' : null });
  }

  // show brings the element up to its text. ended says that no more will come.
  show(ended = false) {
    const { text } = this.#tokens;
    const length = text.length - this.#whole;
    if (this.#plain || !ended && this.#open && length > small && length < this.#made * 17 / 16) {
      const more = document.createDocumentFragment(); // at once: dir="auto" looks at all of the text each time
      this.#put(more, this.#shown, text.length);
      (this.#plain ? this.element : this.#sink).append(more);
      this.#shown = text.length;
      return;
    }
    const focused = this.#open?.contains(document.activeElement) ? document.activeElement.dataset.part : undefined;
    this.#open?.remove();
    this.#open = null;
    const found = blocks(text, this.#whole);
    found.forEach((block, i) => {
      const { element, sink } = render(text, block, (parent, from, to) => this.#put(parent, from, to));
      this.element.append(element);
      if (i < found.length - 1) return;
      this.#open = element;
      this.#sink = sink;
      this.#whole = block.from;
    });
    this.#made = text.length - this.#whole;
    this.#shown = text.length;
    if (focused !== undefined) this.element.querySelector(`[data-part="${focused}"]`)?.focus();
  }

  // put adds text to an element, cut where tokens meet.
  #put(parent, from, to) {
    const { text, parts } = this.#tokens;
    for (let i = this.#tokens.first(from); from < to; i++) {
      const part = parts[i];
      if (!part || part.from >= to) {
        parent.append(text.slice(from, to));
        return;
      }
      if (part.from > from) parent.append(text.slice(from, part.from));
      const begin = Math.max(from, part.from);
      const end = Math.min(to, part.to);
      const p = likelihood(part);
      parent.append(make('span', { class: p < 0.1 ? 'token rare' : p < 0.4 ? 'token unlikely' : 'token', 'data-part': i, tabindex: '-1' }, text.slice(begin, end)));
      from = end;
    }
  }
}
