// The page's entry point: requests, and the views of their answers.
//
//   api.js           the server's API
//   store.js         conversations and settings, stored in this browser
//   messages.js      the view of a message; growing.js, markdown.js and tokens.js are its parts
//   alternatives.js  the alternatives of a token
//   graph.js         the model's graph and its schedule; panzoom.js moves and scales it

import { byId, button, make } from './dom.js';
import * as api from './api.js';
import * as store from './store.js';
import { AnswerView, userMessage } from './messages.js';
import * as alternatives from './alternatives.js';
import { showGraph } from './graph.js';

const [log, words, send, stop, model, form, spoken] = ['log', 'words', 'send', 'stop', 'model', 'settings', 'spoken'].map(byId);

let talk = store.conversations()[0] ?? store.newConversation();
let models = [];
let asking = null; // the AbortController of the running answer

// Models and keys.

async function findModels() {
  try {
    models = (await api.models()).filter((m) => m.context_length);
    tell('');
  } catch (cause) {
    if (cause.status === 401) return askKey();
    tell(cause.message, button('Try again', findModels));
    return undefined;
  }
  model.replaceChildren(...models.map((m) => make('option', { value: m.id }, m.id)));
  const known = [talk.model, store.settings.model].find((id) => models.some((m) => m.id === id));
  if (known) model.value = known;
  fitParameters();
  return undefined;
}

const chosen = () => models.find((m) => m.id === model.value);

// askKey asks for a key and reloads the models.
function askKey() {
  const dialog = byId('key');
  const field = dialog.querySelector('input');
  if (!dialog.open) dialog.showModal();
  field.value = '';
  dialog.querySelector('form').onsubmit = (event) => {
    event.preventDefault();
    api.setKey(field.value);
    dialog.close();
    findModels();
  };
}

function tell(text, ...actions) {
  const notice = byId('notice');
  notice.replaceChildren(text, ...actions);
  notice.hidden = !text;
}

// Parameters.

const numbers = ['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'max_tokens'];

function readSettings() {
  for (const field of form.elements) {
    if (field.name) store.settings[field.name] = field.type === 'checkbox' ? field.checked : field.value;
  }
  store.settings.model = model.value;
  store.saveSettings();
  log.classList.toggle('marked', form.elements.marks.checked);
}

function writeSettings() {
  for (const field of form.elements) {
    if (field.type === 'checkbox') field.checked = Boolean(store.settings[field.name]);
    else if (field.name) field.value = store.settings[field.name] ?? '';
  }
  readSettings();
}

// fitParameters shows the parameters that the model's template has.
function fitParameters() {
  for (const label of form.querySelectorAll('[data-needs]')) {
    label.hidden = !chosen()?.template_variables?.includes(label.dataset.needs);
  }
}

// body returns the request for an answer to the given messages.
function body(messages) {
  const { settings } = store;
  const knows = chosen()?.template_variables ?? [];
  const request = { model: model.value, messages: messages.map(store.said), logprobs: true };
  if (settings.system?.trim()) request.messages.unshift({ role: 'system', content: settings.system });
  for (const name of numbers) {
    if (settings[name] !== '' && settings[name] !== undefined) request[name] = Number(settings[name]);
  }
  request.top_logprobs = settings.alternatives === '' || settings.alternatives === undefined ? 5 : Number(settings.alternatives);
  if (knows.includes('enable_thinking') && settings.thinking) request.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
  if (knows.includes('reasoning_effort') && settings.effort && settings.thinking !== 'off') request.reasoning_effort = settings.effort;
  return request;
}

// Conversations.

const last = () => talk.messages.at(-1);

// Views of answers are kept, since only they have the tokens; a conversation stores only messages.
const views = new WeakMap();

function showTalk() {
  alternatives.hide();
  log.replaceChildren(...talk.messages.map(view));
  if (!talk.messages.length) log.append(make('p', { class: 'empty' }, 'No messages yet. Messages are sent to this page’s server only.'));
  listTalks();
  following = true;
  follow();
}

function view(message) {
  if (message.role === 'user') return userMessage(message, (text) => edit(message, text));
  if (!views.has(message)) newView(message).end();
  return views.get(message).element;
}

function newView(message) {
  const shown = new AnswerView(message, () => retry(message));
  views.set(message, shown);
  return shown;
}

function listTalks() {
  byId('list').replaceChildren(...store.conversations().map((other) => make('li', {},
    button(store.titleOf(other), () => open(other), { 'aria-current': other === talk ? 'true' : null, dir: 'auto', class: 'open' }),
    button('✕', () => remove(other), { 'aria-label': `Delete: ${store.titleOf(other)}` }))));
}

function open(other) {
  asking?.abort();
  talk = other;
  showTalk();
}

function begin(messages) {
  open(store.newConversation(messages));
  words.focus();
}

function remove(other) {
  store.removeConversation(other);
  if (other === talk) open(store.conversations()[0] ?? store.newConversation());
  else listTalks();
}

function save() {
  if (!store.saveConversations()) tell('The browser’s storage is full, and the conversation is not stored: export it.');
}

// Requests.

function say(text) {
  if (!text.trim() || asking) return;
  talk.messages.push({ role: 'user', content: text });
  answer();
}

// edit replaces a message and drops those after it.
function edit(message, text) {
  asking?.abort();
  talk.messages.splice(talk.messages.indexOf(message), Infinity, { role: 'user', content: text });
  answer();
}

// retry generates an answer again and drops the old one and all after it.
function retry(message) {
  asking?.abort();
  talk.messages.splice(talk.messages.indexOf(message), Infinity);
  answer();
}

async function answer() {
  const to = talk;
  const control = new AbortController();
  asking?.abort();
  asking = control;
  const messages = [...to.messages];
  const message = { role: 'assistant', content: '' };
  to.model = model.value;
  to.messages.push(message);
  const shown = newView(message);
  shown.onshow = follow;
  showTalk();
  busy(true);
  save();
  const times = { asked: performance.now(), first: 0, last: 0 };
  const speech = new Speech();
  try {
    for await (const chunk of api.chat(body(messages), control.signal)) {
      take(chunk, message, shown, times, speech);
    }
  } catch (cause) {
    if (cause.name === 'AbortError') message.finish = 'stopped';
    else message.failed = cause.message;
    if (cause.status === 401) askKey();
  }
  if (message.pace && times.last > times.first && message.pace.tokens > 1) {
    message.pace.perSecond = (message.pace.tokens - 1) / (times.last - times.first) * 1000;
  }
  shown.end();
  speech.end(message.failed ?? (message.finish === 'stopped' ? 'Stopped.' : ''));
  if (asking === control) {
    asking = null;
    busy(false);
  }
  save();
  listTalks();
}

function take(chunk, message, shown, times, speech) {
  const choice = chunk.choices[0];
  const pace = message.pace ??= { tokens: 0 };
  if (chunk.usage) {
    pace.tokens = chunk.usage.completion_tokens;
    pace.prompt = chunk.usage.prompt_tokens;
    pace.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (!choice) return;
  const scores = choice.logprobs?.content ?? [];
  const { delta } = choice;
  if (delta.content || delta.reasoning_content || scores.length) {
    times.last = performance.now();
    times.first ||= times.last;
    pace.first ??= times.first - times.asked;
    pace.tokens += scores.length || 1;
    shown.add(delta, scores);
    speech.add(delta.content ?? '');
  }
  if (delta.tool_calls) message.tool_calls = [...(message.tool_calls ?? []), ...delta.tool_calls.map(({ index, ...call }) => call)];
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

// The log stays scrolled to its end until the user scrolls up.
let following = true;
log.addEventListener('scroll', () => { following = log.scrollHeight - log.scrollTop - log.clientHeight < 40; });

function follow() {
  if (following) log.scrollTop = log.scrollHeight;
}

function busy(yes) {
  stop.hidden = !yes;
  send.hidden = yes;
  log.setAttribute('aria-busy', String(yes));
}

// Speech lets screen readers read an answer in whole sentences.
class Speech {
  #rest = '';

  add(text) {
    this.#rest += text;
    if (!/[.!?。؟\n]\s*$/.test(text) && this.#rest.length < 400) return;
    spoken.textContent = this.#rest;
    this.#rest = '';
  }

  end(how) {
    spoken.textContent = `${this.#rest} ${how}`;
  }
}

// User actions.

byId('say').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = words.value;
  if (asking || !text.trim()) return;
  words.value = '';
  grow();
  say(text);
});

words.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId('say').requestSubmit();
});

function grow() {
  words.style.height = 'auto';
  words.style.height = `${Math.min(words.scrollHeight + 2, innerHeight / 3)}px`;
}
words.addEventListener('input', grow);

stop.addEventListener('click', () => { asking?.abort(); words.focus(); });

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || byId('key').open) return;
  if (alternatives.shown()) alternatives.hide();
  else if (asking) asking.abort();
  else closePanels();
});

model.addEventListener('change', () => { fitParameters(); readSettings(); refreshGraph(); });
form.addEventListener('input', readSettings);
form.addEventListener('submit', (event) => event.preventDefault());
byId('new').addEventListener('click', () => begin());

byId('export').addEventListener('click', () => {
  const url = URL.createObjectURL(new Blob([store.toFile(talk, store.settings.system)], { type: 'application/json' }));
  make('a', { href: url, download: 'conversation.json' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
});

byId('import').addEventListener('click', () => byId('file').click());
byId('file').addEventListener('change', async ({ target }) => {
  const [file] = target.files;
  target.value = '';
  if (!file) return;
  try {
    const { messages, system } = store.fromFile(await file.text());
    store.settings.system = system;
    writeSettings();
    begin(messages);
    save();
    tell('');
  } catch (cause) {
    tell(`${file.name} holds no conversation: ${cause.message}`);
  }
});

byId('clear').addEventListener('click', () => {
  const sure = byId('clear');
  if (sure.dataset.sure) {
    store.removeAll();
    begin();
  }
  sure.textContent = sure.dataset.sure ? 'Clear all' : 'Clear all: sure?';
  if (sure.dataset.sure) delete sure.dataset.sure;
  else sure.dataset.sure = 'yes';
});

// Panels: one at a time, beside the conversation or over it.

const openers = [...document.querySelectorAll('.opens')];
const panelOf = (opener) => byId(opener.getAttribute('aria-controls'));

function closePanels() {
  const was = openers.find((opener) => opener.ariaExpanded === 'true');
  for (const opener of openers) {
    panelOf(opener).hidden = true;
    opener.ariaExpanded = 'false';
  }
  document.body.classList.remove('beside');
  was?.focus();
}

for (const opener of openers) {
  opener.addEventListener('click', () => {
    const wasOpen = opener.ariaExpanded === 'true';
    closePanels();
    if (wasOpen) return;
    panelOf(opener).hidden = false;
    opener.ariaExpanded = 'true';
    document.body.classList.add('beside');
    refreshGraph();
  });
  panelOf(opener).querySelector('.close').addEventListener('click', closePanels);
}

function refreshGraph() {
  if (!byId('graph').hidden && model.value) showGraph(model.value);
}
byId('which').addEventListener('change', refreshGraph);
byId('which').addEventListener('submit', (event) => { event.preventDefault(); refreshGraph(); });

// The colour scheme is the system's until the user chooses one.
function setTheme(theme) {
  document.documentElement.dataset.theme = theme ?? '';
}
setTheme(store.settings.theme);
byId('theme').addEventListener('click', () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === 'dark'
    || (!store.settings.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  store.settings.theme = dark ? 'light' : 'dark';
  store.saveSettings();
  setTheme(store.settings.theme);
});

addEventListener('pagehide', save);
writeSettings();
showTalk();
findModels();
words.focus();
