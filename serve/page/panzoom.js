// Moves and scales a drawing by pointer, touch, wheel, buttons and keys.

import { button, make } from './dom.js';

const nearest = 20; // maximum scale, relative to the whole drawing in view

// panZoom wraps an SVG of width × height in a frame that shows a section of it.
export function panZoom(svg, width, height) {
  const view = { x: 0, y: 0, scale: 1 }; // scale: pixels per unit
  const frame = make('div', { class: 'frame' }, svg);
  const all = () => Math.min(frame.clientWidth / width, frame.clientHeight / height, 1.5);
  const pointers = new Map();

  function apply() {
    const w = frame.clientWidth / view.scale;
    const h = frame.clientHeight / view.scale;
    // The centre of the view stays within the drawing.
    view.x = Math.min(Math.max(view.x, -w / 2), width - w / 2);
    view.y = Math.min(Math.max(view.y, -h / 2), height - h / 2);
    svg.setAttribute('viewBox', `${view.x} ${view.y} ${w} ${h}`);
  }

  // fit shows the full width from the top, since all of a tall graph would be unreadably small.
  function fit() {
    view.scale = Math.min(frame.clientWidth / width, 1.2);
    view.x = (width - frame.clientWidth / view.scale) / 2;
    view.y = Math.min(0, (height - frame.clientHeight / view.scale) / 2);
    apply();
  }

  function zoom(by, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
    const scale = Math.min(Math.max(view.scale * by, all()), nearest * Math.max(all(), 0.5));
    view.x += x / view.scale - x / scale;
    view.y += y / view.scale - y / scale;
    view.scale = scale;
    apply();
  }

  function pan(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    apply();
  }

  const inFrame = (event) => {
    const at = frame.getBoundingClientRect();
    return [event.clientX - at.left, event.clientY - at.top];
  };
  frame.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0015), ...inFrame(event));
  }, { passive: false });
  frame.addEventListener('pointerdown', (event) => pointers.set(event.pointerId, inFrame(event)));
  frame.addEventListener('pointermove', (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = inFrame(event);
    const far = Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (far < 3 && !frame.hasPointerCapture(event.pointerId)) return; // a click with a small movement
    frame.setPointerCapture(event.pointerId);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const distance = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
      zoom(distance(now) / distance(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else {
      pan(now[0] - before[0], now[1] - before[1]);
    }
    pointers.set(event.pointerId, now);
  });
  for (const end of ['pointerup', 'pointercancel']) frame.addEventListener(end, (event) => pointers.delete(event.pointerId));
  new ResizeObserver(() => (frame.dataset.seen ? apply() : fit(frame.dataset.seen = 'yes'))).observe(frame);

  const buttons = make('div', { class: 'zoom' },
    button('+', () => zoom(1.4), { 'aria-label': 'Nearer' }),
    button('−', () => zoom(1 / 1.4), { 'aria-label': 'Further' }),
    button('⤢', fit, { 'aria-label': 'Fit the width' }));
  const keys = { '+': () => zoom(1.4), '-': () => zoom(1 / 1.4), 0: fit,
    W: () => pan(0, 60), S: () => pan(0, -60), A: () => pan(60, 0), D: () => pan(-60, 0) };
  svg.addEventListener('keydown', (event) => {
    const key = keys[event.key] ?? keys[event.key.toUpperCase()];
    if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    key();
  });

  // reveal scrolls a box of the drawing into view.
  function reveal(x, y) {
    const w = frame.clientWidth / view.scale;
    const h = frame.clientHeight / view.scale;
    if (x < view.x || x > view.x + w) view.x = x - w / 2;
    if (y < view.y || y > view.y + h) view.y = y - h / 2;
    apply();
  }
  return { element: make('div', { class: 'panzoom' }, frame, buttons), reveal };
}
