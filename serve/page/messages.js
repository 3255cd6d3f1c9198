// The view of a message.

import { button, copyButton, make } from './dom.js';
import { Growing } from './growing.js';
import { Tokens } from './tokens.js';
import { offer } from './alternatives.js';

const names = { user: 'You', assistant: 'Model', system: 'System', tool: 'Tool' };

function frame(message, body, actions) {
  return make('article', { class: `message ${message.role === 'user' ? 'user' : 'assistant'}`, 'aria-label': names[message.role] ?? 'Message' },
    make('h2', { class: 'who' }, names[message.role] ?? message.role), body, make('footer', {}, actions));
}

// userMessage shows a user's message; edit is called with the new text.
export function userMessage(message, edit) {
  const text = make('div', { class: 'text plain', dir: 'auto' }, message.content);
  const change = button('Edit', () => {
    const area = make('textarea', { dir: 'auto', 'aria-label': 'The message, to be edited' });
    area.value = message.content;
    area.rows = Math.min(message.content.split('\n').length + 1, 12);
    const back = () => { form.replaceWith(text); change.disabled = false; change.focus(); };
    const form = make('form', { class: 'edit',
      onsubmit: (event) => { event.preventDefault(); if (area.value.trim()) edit(area.value); },
      onkeydown: (event) => {
        if (event.key === 'Escape') { event.stopPropagation(); back(); }
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
      } },
    area, make('button', { type: 'submit' }, 'Send'), button('Cancel', back));
    text.replaceWith(form);
    change.disabled = true;
    area.focus();
  });
  return frame(message, text, [change, copyButton(() => message.content)]);
}

// AnswerView is the view of an answer that may still grow.
export class AnswerView {
  #message;
  #content = new Tokens();
  #reasoning = new Tokens();
  #words = new Growing(this.#content);
  #thoughts = new Growing(this.#reasoning, true);
  #summary = make('summary', {}, 'Thinking…');
  #thinking = make('details', { class: 'reasoning', hidden: true }, this.#summary, this.#thoughts.element);
  #calls = make('div');
  #failed = make('p', { class: 'failed', role: 'alert', hidden: true });
  #pace = make('span', { class: 'pace' });
  #drawing = 0;

  constructor(message, retry) {
    this.#message = message;
    for (const [growing, tokens] of [[this.#words, this.#content], [this.#thoughts, this.#reasoning]]) {
      growing.element.tabIndex = 0;
      growing.element.setAttribute('role', 'group');
      growing.element.setAttribute('aria-label', 'Answer: the arrow keys go from token to token');
      offer(growing.element, tokens);
    }
    const body = make('div', {}, this.#thinking, this.#words.element, this.#calls, this.#failed);
    this.element = frame(message, body, [button('Retry', retry), copyButton(() => message.content), this.#pace]);
    this.#reasoning.add(message.reasoning ?? '', []);
    this.#content.add(message.content ?? '', []);
  }

  // add appends a chunk. The tokens of reasoning and content are in one list.
  add({ content = '', reasoning_content: reasoning = '' }, scores) {
    content ??= '';
    if (reasoning) this.#reasoning.add(reasoning, content ? [] : scores);
    if (content || !reasoning) this.#content.add(content, scores);
    this.#message.content = this.#content.text;
    if (reasoning) this.#message.reasoning = this.#reasoning.text;
    this.#drawing ||= requestAnimationFrame(() => { this.#drawing = 0; this.#show(false); });
  }

  // end shows the complete message.
  end() {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = 0;
    this.#show(true);
  }

  #show(ended) {
    const m = this.#message;
    this.element.setAttribute('aria-busy', String(!ended));
    this.#words.show(ended);
    if (m.reasoning) {
      this.#thoughts.show(ended);
      this.#thinking.hidden = false;
      this.#summary.textContent = m.content || ended ? 'Reasoning' : 'Thinking…';
    }
    this.#calls.replaceChildren(...(m.tool_calls ?? []).map((call) => make('pre', { class: 'call' }, `${call.function?.name} ${call.function?.arguments}`)));
    this.#failed.hidden = !m.failed;
    this.#failed.textContent = m.failed ?? '';
    this.#pace.textContent = ended ? paceOf(m) : '';
    this.onshow?.();
  }
}

const endings = { length: 'cut off at the limit of tokens', stopped: 'stopped', tool_calls: 'calls a tool' };

// paceOf returns the summary of an answer's speed.
function paceOf({ pace, finish }) {
  const says = [];
  if (pace) {
    says.push(`${pace.tokens} tokens`);
    if (pace.perSecond) says.push(`${pace.perSecond.toFixed(pace.perSecond < 10 ? 1 : 0)} tokens/s`);
    if (pace.first) says.push(`first after ${pace.first < 1000 ? `${pace.first.toFixed(0)} ms` : `${(pace.first / 1000).toFixed(1)} s`}`);
    if (pace.cached) says.push(`${pace.cached} of ${pace.prompt} prompt tokens cached`);
  }
  if (endings[finish]) says.push(endings[finish]);
  return says.join(' · ');
}
