// Shows the alternatives of a token beside it, when the token is hovered or focused.

import { byId, make } from './dom.js';
import { alternatives, spoken } from './tokens.js';

const box = byId('alternatives');

// offer shows the alternatives of the tokens within an element. The element itself takes the focus;
// the arrow keys then move from token to token.
export function offer(element, tokens) {
  const spanOf = (event) => event.target.closest?.('.token');
  element.addEventListener('pointerover', (event) => {
    const span = spanOf(event);
    if (span) show(span, tokens.parts[span.dataset.part]);
  });
  element.addEventListener('pointerleave', () => {
    if (!element.contains(document.activeElement)) hide();
  });
  element.addEventListener('focusin', (event) => {
    const span = spanOf(event);
    if (!span) return;
    const part = tokens.parts[span.dataset.part];
    show(span, part);
    span.setAttribute('aria-label', spoken(part));
  });
  element.addEventListener('focusout', hide);
  element.addEventListener('keydown', (event) => {
    if (event.target.closest('pre, button, a, summary')) return;
    const spans = [...element.querySelectorAll('.token')];
    const span = spanOf(event);
    const at = spans.indexOf(span);
    const forward = getComputedStyle(span?.parentElement ?? element).direction === 'rtl' ? 'ArrowLeft' : 'ArrowRight';
    const to = { [forward]: at + 1, Home: 0, End: spans.length - 1 }[event.key]
      ?? (['ArrowLeft', 'ArrowRight'].includes(event.key) ? Math.max(at - 1, 0) : undefined);
    if (to === undefined || !spans[to]) return;
    event.preventDefault();
    spans[to].focus();
  });
}

export function hide() {
  box.hidden = true;
}

export const shown = () => !box.hidden;

function show(span, part) {
  if (!part) return;
  box.replaceChildren(...part.scores.map((score) => make('ol', {}, alternatives(score).map((a) => {
    const bar = make('i');
    bar.style.width = `${100 * a.width}%`;
    return make('li', { class: a.chosen ? 'chosen' : null }, make('bdi', {}, a.token), make('b', {}, a.share), bar);
  }))));
  box.hidden = false;
  const at = span.getBoundingClientRect();
  const below = at.bottom + box.offsetHeight + 12 < innerHeight;
  box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - box.offsetHeight - 6)}px`;
}
