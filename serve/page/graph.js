// Shows the model's source graph, fused graph and schedule, and the details of each dispatch.

import { byId, button, draw, make } from './dom.js';
import * as api from './api.js';
import { panZoom } from './panzoom.js';

const [stages, drawing, detail] = ['stages', 'drawing', 'detail'].map(byId);
let data = null;
let asked = '';
let stage = 'plan';

// showGraph shows the graph of a model, with the parameters of the form.
export async function showGraph(model) {
  const query = { model, ...Object.fromEntries(new FormData(byId('which'))) };
  const ask = JSON.stringify(query);
  if (ask === asked) return;
  asked = ask;
  data = null;
  stages.replaceChildren();
  detail.replaceChildren();
  drawing.replaceChildren(make('p', { class: 'wait' }, 'Compiling and laying out…'));
  try {
    const found = await api.graph(query);
    if (ask !== asked) return; // a later request replaced this one
    data = found;
  } catch (cause) {
    if (ask !== asked) return;
    asked = '';
    drawing.replaceChildren(make('p', { class: 'failed' }, cause.message), button('Try again', () => showGraph(model)));
    return;
  }
  const names = [...data.pictures.map((p) => p.name), 'schedule'];
  stages.replaceChildren(...names.map((name) => button(name, () => show(name), { role: 'tab', 'aria-controls': 'drawing', id: `stage-${name}` })));
  stages.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(stage) + step + names.length) % names.length];
    show(next);
    byId(`stage-${next}`).focus();
  };
  show(names.includes(stage) ? stage : 'plan');
}

function show(name) {
  stage = name;
  for (const tab of stages.children) {
    const chosen = tab.id === `stage-${name}`;
    tab.setAttribute('aria-selected', String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  detail.replaceChildren(overview());
  drawing.replaceChildren(...(name === 'schedule' ? schedule() : picture(data.pictures.find((p) => p.name === name))));
}

// overview is shown until a dispatch is selected.
function overview() {
  const p = data.prediction;
  return make('p', { class: 'hint' }, `${data.dispatches.length} dispatches of a ${data.phase} step on ${data.target}. `
    + `Predicted for ${p.chip}, not measured: ${p.ms.toPrecision(3)} ms, bound by ${p.bound}. Select a dispatch to see its details.`);
}

// picture draws the graph of a stage.
function picture(of) {
  const arrows = of.arrows.map(({ points: [start, ...rest] }) => draw('path', { class: 'arrow', 'marker-end': 'url(#tip)', d: `M${start}C${rest.join(' ')}` }));
  const boxes = of.boxes.map((box) => {
    const { x, y, width, height, lines, size, dispatches } = box;
    const middle = (lines.length - 1) / 2;
    return draw('g', { class: dispatches.length ? 'box chooses' : 'box', role: dispatches.length ? 'button' : null, tabindex: dispatches.length ? -1 : null,
      'aria-label': dispatches.length ? lines.join(', ') : null },
    draw('rect', { x: x - width / 2, y: y - height / 2, width, height, rx: 5, fill: box.colour || null, class: box.dashed ? 'dashed' : null }),
    lines.map((line, i) => draw('text', { x, y: y + (i - middle) * size * 1.2 + size * 0.35, 'font-size': size, class: box.colour ? 'on' : null }, line)));
  });
  const tip = draw('marker', { id: 'tip', viewBox: '0 0 8 8', refX: 1, refY: 4, markerWidth: 6, markerHeight: 6, orient: 'auto' }, draw('path', { d: 'M0 0L8 4L0 8z' }));
  const svg = draw('svg', { tabindex: 0, role: 'group', 'aria-label': `The ${of.name} graph: arrow keys choose, + and - zoom, W A S D move` }, draw('defs', {}, tip), arrows, boxes);
  const moved = panZoom(svg, of.width, of.height);
  choosing(svg, boxes, (i) => tell(of.boxes[i].dispatches), (i) => moved.reveal(of.boxes[i].x, of.boxes[i].y));
  return [make('p', { class: 'hint' }, of.text), moved.element];
}

// choosing makes one of several elements selectable, by pointer or arrow keys.
function choosing(svg, things, choose, reveal) {
  const open = things.map((thing, i) => i).filter((i) => things[i].classList.contains('chooses'));
  let at = -1;
  const to = (next) => {
    things[open[at]]?.classList.remove('chosen');
    at = next;
    things[open[at]].classList.add('chosen');
    choose(open[at]);
  };
  open.forEach((i, k) => things[i].addEventListener('click', () => to(k)));
  svg.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || !open.length) return;
    event.preventDefault();
    to(Math.min(Math.max(at + step, 0), open.length - 1));
    reveal(open[at]);
  });
}

const lane = 22;
const barWidth = 700;

// schedule draws the timeline of the step and lists its dispatches.
function schedule() {
  const { dispatches, command_buffers: buffers } = data;
  const begin = Math.min(...dispatches.map((d) => d.start)); // before that the CPU encodes
  const total = Math.max(...dispatches.map((d) => d.end)) - begin;
  const x = (us) => Math.max(us - begin, 0) / total * barWidth;
  const bar = (y, start, end, fill, text, name) => draw('g', { class: name },
    draw('rect', { x: x(start), y, width: Math.max(x(end) - x(start), 0.5), height: lane - 3, fill }),
    x(end) - x(start) > text.length * 6.5 && draw('text', { x: x(start) + 4, y: y + 14, class: 'on left', 'font-size': 11 }, text));
  const bars = dispatches.map((d) => bar((d.lane + 1) * lane, d.start, d.end, d.colour, d.kernel, 'box chooses'));
  const height = (Math.max(...dispatches.map((d) => d.lane), 0) + 2) * lane;
  const barriers = dispatches.filter((d) => d.barrier).map((d) => draw('path', { class: 'barrier', d: `M${x(d.start)} ${lane - 3}V${height}` }));
  const svg = draw('svg', { tabindex: 0, role: 'group', 'aria-label': 'The schedule: arrow keys choose, + and - zoom' },
    buffers.map((b, i) => bar(0, b.start, b.end, '#9fb3c8', `command buffer ${i}`, 'box')), bars, barriers);
  const moved = panZoom(svg, barWidth, height);
  moved.element.classList.add('strip');
  const middle = (i) => [x((dispatches[i].start + dispatches[i].end) / 2), height / 2];
  choosing(svg, bars, (i) => tell([i]), (i) => moved.reveal(...middle(i)));
  const longest = Math.max(...dispatches.map((d) => d.end - d.start));
  const rows = dispatches.map((d, i) => {
    const share = make('i');
    share.style.width = `${100 * (d.end - d.start) / longest}%`;
    share.style.background = d.colour;
    return make('li', { class: d.barrier ? 'waits' : null },
      make('button', { type: 'button', onclick: () => { tell([i]); moved.reveal(...middle(i)); } },
        make('span', { class: 'n' }, i), make('code', {}, d.kernel), make('span', { class: 'layer' }, d.layer < 0 ? '' : `layer ${d.layer}`),
        make('span', { class: 'us' }, micros(d.end - d.start)), share));
  });
  const legend = make('ul', { class: 'legend' }, data.legend.map(({ colour, text }) => {
    const swatch = make('i');
    swatch.style.background = colour;
    return make('li', {}, swatch, text);
  }));
  return [make('p', { class: 'hint' }, 'Predicted, from left to right in time; red lines are barriers.'), legend, moved.element, make('ol', { class: 'launches' }, rows)];
}

const micros = (us) => `${us < 10 ? us.toFixed(2) : us.toFixed(0)} µs`;
const number = new Intl.NumberFormat('en');

function amount(n, unit) {
  for (const prefix of ['', 'k', 'M', 'G']) {
    if (n < 1000 || prefix === 'G') return `${prefix ? n.toPrecision(3) : n} ${prefix}${prefix && unit.length > 1 ? ' ' : ''}${unit}`;
    n /= 1000;
  }
  return '';
}

// tell shows the details of dispatches.
function tell(indices) {
  detail.replaceChildren(...indices.map((i) => {
    const d = data.dispatches[i];
    const row = (name, ...what) => [make('dt', {}, name), make('dd', {}, ...what)];
    const rules = d.rules.length ? make('ol', { class: 'rules' }, d.rules.map((rule) => make('li', {}, make('code', {}, rule), ` ${data.rules[rule] ?? ''}`)))
      : 'none: the op is as in the model’s definition';
    return make('section', { class: 'dispatch' },
      make('h3', {}, `${i} `, make('code', {}, d.kernel)),
      make('p', {}, d.summary),
      make('dl', {},
        row('computes', d.label),
        row('grid', `${d.grid.map((n) => number.format(n)).join(' × ')} threadgroups`),
        row('threadgroup', `${d.group.join(' × ')} threads`),
        row('waits', d.barrier ? 'for all earlier dispatches, at a barrier' : 'for none'),
        row('cost', `${micros(d.end - d.start)} on ${data.prediction.chip}, predicted; ${amount(d.read, 'B')} read, ${amount(d.written, 'B')} written, ${amount(d.ops, 'operations')}`),
        row('rules', rules)),
      make('div', { class: 'scrolls', tabindex: '0' }, make('table', {}, make('caption', {}, 'Buffers'),
        make('thead', {}, make('tr', {}, ['', 'argument', 'buffer', 'offset', 'bytes', ''].map((name) => make('th', {}, name)))),
        make('tbody', {}, d.buffers.map((b) => make('tr', {}, [b.index, b.name, b.buffer, number.format(b.offset), number.format(b.bytes), b.access].map((cell) => make('td', {}, cell))))))));
  }));
}
