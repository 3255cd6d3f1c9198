// The element of a growing text, as Markdown or plain.
//
// Complete blocks are rendered once. The last, open block is rendered again only after it has grown
// by a sixteenth; until then text is appended to its end. The total work is thus linear in the
// text.

import { make } from './dom.js';
import { blocks, render } from './markdown.js';
import { likelihood } from './tokens.js';

const small = 400; // a shorter block is always rendered again

export class Growing {
  #tokens;
  #plain;
  #whole = 0; // end of the complete blocks
  #shown = 0; // end of the shown text
  #made = 0; // length of the open block when it was last rendered
  #open = null; // element of the open block
  #sink = null; // element to which text is appended

  constructor(tokens, plain = false) {
    this.#tokens = tokens;
    this.#plain = plain;
    this.element = make('div', { class: plain ? 'text plain' : 'text', dir: plain ? 'auto' : null });
  }

  // show updates the element to the text; ended reports that the text is complete.
  show(ended = false) {
    const { text } = this.#tokens;
    const length = text.length - this.#whole;
    if (this.#plain || !ended && this.#open && length > small && length < this.#made * 17 / 16) {
      const more = document.createDocumentFragment(); // one insertion, since dir="auto" rescans the text at each
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

  // put appends text to an element, split at the borders of tokens.
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
