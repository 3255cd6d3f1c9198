// A person's hands on the page: node page.mjs URL URL-WITH-KEYS [FOLDER FOR PICTURES].
import assert from 'node:assert/strict';
import puppeteer from 'puppeteer-core';

const [open, locked, shots] = process.argv.slice(2);
const only = process.env.ONLY;
const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', headless: true, args: ['--no-sandbox', '--disable-gpu'] });
const wide = { width: 1280, height: 860 };
const narrow = { width: 360, height: 740, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };

// visit opens the page as someone who was never there, and fails on what it complains about.
async function visit(url = open, { viewport = wide, features = [] } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (m) => { if (m.type() === 'error') page.complaints.push(m.text()); });
  page.on('pageerror', (e) => page.complaints.push(e.message));
  page.on('request', (r) => { if (!r.url().startsWith(url) && !r.url().startsWith('blob:')) page.complaints.push(`it asked ${r.url()}`); });
  await page.setViewport(viewport);
  await page.emulateMediaFeatures(features);
  await page.goto(url);
  return page;
}

const ready = (page) => page.waitForSelector('#model option');
const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
const answers = (page) => page.$$eval('.message.assistant .text:not(.plain)', (all) => all.map((e) => e.textContent));

async function send(page, words) {
  await page.focus('#words');
  await page.keyboard.type(words);
  await page.keyboard.press('Enter');
}

const ended = (page, n = 1, timeout = 30000) => page.waitForFunction((n) => {
  const all = document.querySelectorAll('.message.assistant');
  return all.length === n && all[n - 1].ariaBusy === 'false' && document.getElementById('stop').hidden;
}, { timeout }, n);

// offline takes the network away, or gives it back, by a method that older browsers know too.
async function offline(page, away) {
  const network = await page.createCDPSession();
  await network.send('Network.enable');
  await network.send('Network.emulateNetworkConditions', { offline: away, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
}

async function ask(page, words, n = 1) {
  await send(page, words);
  await ended(page, n);
}

const picture = async (page, name) => {
  if (!shots) return;
  await page.screenshot({ path: `${shots}/${name}.png` });
  await page.screenshot({ path: `${shots}/${name}.webp`, type: 'webp', quality: 80 }); // small, for docs/
};
const overflows = (page) => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
const last = async (page) => JSON.parse(await page.evaluate(() => fetch('/test/last').then((r) => r.text())));

const tests = {
  async 'an answer streams, and says its pace'() {
    const page = await visit();
    await ready(page);
    await page.evaluate(() => {
      window.lengths = new Set();
      new MutationObserver(() => lengths.add(document.querySelector('.message.assistant .text:not(.plain)')?.textContent.length)).observe(document.getElementById('log'), { childList: true, subtree: true });
    });
    await ask(page, 'Tell me a story about a fox.');
    assert.ok((await page.evaluate(() => lengths.size)) > 3, 'it came in pieces');
    assert.match(await text(page, '.pace'), /\d+ tokens · [\d.]+ tokens\/s · first after/);
    assert.ok((await answers(page))[0].length > 40);
    assert.equal(await page.$eval('#words', (e) => e.value), '');
    assert.notEqual(await text(page, '#spoken'), '', 'screen readers are told');
    await picture(page, 'light');
    return page;
  },

  async 'Esc and the button stop an answer'() {
    const page = await visit();
    await ready(page);
    await send(page, '!slow');
    await page.waitForFunction(() => document.querySelector('.message.assistant .text:not(.plain)')?.textContent.includes('tick'));
    await page.keyboard.press('Escape');
    await ended(page);
    assert.match(await text(page, '.pace'), /stopped/);
    const [first] = await answers(page);
    assert.ok(first.includes('tick') && first.length < 900, 'what came stays');
    await send(page, '!slow');
    await page.waitForFunction(() => document.querySelectorAll('.message.assistant').length === 2 && document.querySelectorAll('.message.assistant .text:not(.plain)')[1].textContent.includes('tick'));
    await page.click('#stop');
    await ended(page, 2);
    return page;
  },

  async 'retry asks again, with what was said before'() {
    const page = await visit();
    await ready(page);
    await ask(page, 'Once upon a time');
    await ask(page, 'Go on.', 2);
    const before = await last(page);
    const [retry] = await page.$$('.message:nth-child(4) footer button');
    await retry.click();
    await ended(page, 2);
    const after = await last(page);
    assert.deepEqual(after.messages, before.messages);
    assert.deepEqual(after.messages.map((m) => m.role), ['user', 'assistant', 'user']);
    return page;
  },

  async 'what was said is edited, and what came after it is gone'() {
    const page = await visit();
    await ready(page);
    await ask(page, 'first words');
    await ask(page, 'second words', 2);
    const [edit] = await page.$$('.message.user footer button');
    await edit.click();
    await page.waitForSelector('.edit textarea');
    await page.keyboard.down('Control');
    await page.keyboard.press('a');
    await page.keyboard.up('Control');
    await page.keyboard.type('other words');
    await page.keyboard.press('Enter');
    await ended(page, 1);
    assert.equal(await text(page, '.message.user .text'), 'other words');
    assert.deepEqual((await last(page)).messages, [{ role: 'user', content: 'other words' }]);
    return page;
  },

  async 'parameters are those of the request, and are kept'() {
    const page = await visit();
    await ready(page);
    await page.click('[aria-controls=parameters]');
    const fields = { system: 'Be brief.', temperature: '0.5', top_p: '0.9', top_k: '20', min_p: '0.1', seed: '7', max_tokens: '9', alternatives: '3' };
    for (const [name, value] of Object.entries(fields)) await page.type(`[name=${name}]`, value);
    await page.select('[name=thinking]', 'on');
    await page.select('[name=effort]', 'low');
    await picture(page, 'parameters');
    await ask(page, 'Hello');
    const body = await last(page);
    assert.deepEqual(body.messages[0], { role: 'system', content: 'Be brief.' });
    assert.deepEqual([body.temperature, body.top_p, body.top_k, body.min_p, body.seed, body.max_tokens, body.top_logprobs, body.reasoning_effort],
      [0.5, 0.9, 20, 0.1, 7, 9, 3, 'low']);
    assert.deepEqual(body.chat_template_kwargs, { enable_thinking: true });
    assert.match(await text(page, '.pace'), /^9 tokens/);
    assert.match(await text(page, '.pace'), /cut off/);
    const [first] = await answers(page);
    await page.reload();
    await ready(page);
    assert.equal(await page.$eval('[name=top_k]', (e) => e.value), '20');
    assert.deepEqual(await answers(page), [first], 'conversations survive a reload');
    await page.select('#model', 'llama');
    assert.ok(await page.$eval('[data-needs=reasoning_effort]', (e) => e.hidden), 'the other model knows no effort');
    await ask(page, 'Hello', 2);
    assert.equal((await last(page)).model, 'llama');
    assert.match(await page.$eval('.message:last-child .failed', (e) => e.textContent), /template/, 'it has no template, which is said');
    page.complaints = page.complaints.filter((c) => !c.includes('400'));
    return page;
  },

  async 'alternatives, by pointer and by keyboard'() {
    const page = await visit();
    await ready(page);
    await ask(page, 'Tell me a story.');
    await ask(page, '!think', 2);
    const token = (await page.$$('.message.assistant .token'))[4];
    await token.hover();
    assert.ok((await page.$$('#alternatives li')).length >= 5);
    assert.match(await text(page, '#alternatives .chosen'), /%/);
    await picture(page, 'alternatives');
    await page.mouse.move(5, 400);
    await page.waitForSelector('#alternatives', { hidden: true });
    await page.focus('.message.assistant .text:not(.plain)');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    await page.waitForSelector('#alternatives', { visible: true });
    assert.equal(await page.evaluate(() => document.activeElement.dataset.part), '1');
    assert.match(await page.evaluate(() => document.activeElement.ariaLabel), /%; else/);
    await page.keyboard.press('Escape');
    await page.waitForSelector('#alternatives', { hidden: true });
    return page;
  },

  async 'all by keyboard'() {
    const page = await visit();
    await ready(page);
    await ask(page, 'Hello');
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(() => {
        const e = document.activeElement;
        const style = getComputedStyle(e);
        return { name: e.ariaLabel || e.textContent.trim().slice(0, 30), ring: e === document.body || style.outlineStyle !== 'none' };
      });
      assert.ok(at.ring, `${at.name} shows its focus`);
      seen.add(at.name);
    }
    for (const name of ['New', 'Conversations', 'Parameters', 'Graph', 'Dark or light', 'Edit', 'Copy', 'Retry', 'Message', 'Model']) assert.ok(seen.has(name), `${name} is reached`);
    await page.focus('[aria-controls=graph]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.frame svg', { timeout: 60000 });
    await page.evaluate(() => document.querySelector('.frame svg').focus());
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.waitForSelector('.dispatch h3');
    assert.match(await text(page, '.dispatch h3'), /^1 /);
    const before = await page.$eval('.frame svg', (e) => e.getAttribute('viewBox'));
    await page.keyboard.press('+');
    assert.notEqual(await page.$eval('.frame svg', (e) => e.getAttribute('viewBox')), before);
    await page.keyboard.press('Escape');
    await page.waitForSelector('#graph', { hidden: true });
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Graph', 'the focus goes back');
    await page.focus('#words');
    await page.keyboard.type('one');
    await page.keyboard.down('Shift');
    await page.keyboard.press('Enter');
    await page.keyboard.up('Shift');
    await page.keyboard.type('two');
    assert.equal(await page.$eval('#words', (e) => e.value), 'one\ntwo');
    return page;
  },

  async 'a telephone'() {
    const page = await visit(open, { viewport: narrow });
    await ready(page);
    await ask(page, '!markdown');
    assert.ok(!await overflows(page), 'nothing is wider than the screen');
    await picture(page, 'phone');
    await page.tap('[aria-controls=graph]');
    await page.waitForSelector('.frame svg', { timeout: 60000 });
    await new Promise((r) => setTimeout(r, 200));
    await page.tap('.box.chooses');
    await page.waitForSelector('.dispatch');
    assert.ok(!await overflows(page));
    await picture(page, 'phone-graph');
    await page.tap('#graph .close');
    await page.tap('[aria-controls=talks]');
    assert.ok(!await overflows(page));
    return page;
  },

  async 'from right to left'() {
    const page = await visit();
    await ready(page);
    await ask(page, '!rtl');
    const directions = await page.$$eval('.text:not(.plain) p', (all) => all.map((p) => getComputedStyle(p).direction));
    assert.deepEqual(directions, ['rtl', 'rtl', 'ltr']);
    await page.evaluate(() => document.querySelector('.text:not(.plain)').focus());
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowLeft');
    assert.equal(await page.evaluate(() => document.activeElement.dataset.part), '1', 'left is forward');
    await page.focus('#words');
    await page.keyboard.type('مرحبا');
    assert.equal(await page.$eval('#words', (e) => getComputedStyle(e).direction), 'rtl');
    await picture(page, 'rtl');
    return page;
  },

  async 'dark, as the system has it and by the switch'() {
    const page = await visit(open, { features: [{ name: 'prefers-color-scheme', value: 'dark' }, { name: 'prefers-reduced-motion', value: 'reduce' }] });
    await ready(page);
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    assert.equal(dark, 'rgb(15, 20, 25)');
    await ask(page, '!markdown');
    await picture(page, 'dark');
    await page.click('#theme');
    assert.notEqual(await ground(), dark);
    await page.reload();
    await ready(page);
    assert.notEqual(await ground(), dark, 'the choice is kept');
    await page.click('#theme');
    assert.equal(await ground(), dark);
    const moving = await page.evaluate(() => document.getAnimations().length);
    assert.equal(moving, 0, 'nothing moves');
    return page;
  },

  async 'a key is asked for, and kept with the tab'() {
    const page = await visit(locked);
    await page.waitForSelector('#key[open]');
    await picture(page, 'key');
    await page.keyboard.type('guess');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#key[open]');
    await page.waitForFunction(() => document.querySelector('#key input').value === '');
    await page.type('#key input', 'secret');
    await page.keyboard.press('Enter');
    await ready(page);
    await ask(page, 'Hello');
    assert.equal(await page.evaluate(() => sessionStorage.getItem('smelt.key')), 'secret');
    assert.ok(!await page.evaluate(() => JSON.stringify(localStorage).includes('secret')));
    page.complaints = page.complaints.filter((c) => !c.includes('401'));
    return page;
  },

  async 'the server goes away in the middle of an answer'() {
    const page = await visit();
    await ready(page);
    await ask(page, '!away');
    assert.match(await text(page, '.failed'), /connection was lost/);
    assert.equal((await answers(page))[0], 'It was once', 'what came stays');
    page.complaints = page.complaints.filter((c) => !c.includes('ERR_'));
    await offline(page, true);
    await page.click('.message.assistant footer button');
    await page.waitForFunction(() => document.querySelector('.failed').textContent.includes('does not answer'));
    page.complaints = page.complaints.filter((c) => !c.includes('ERR_'));
    await offline(page, false);
    await page.click('.message.user footer button');
    await page.keyboard.type(' and again');
    await page.keyboard.press('Enter');
    await ended(page);
    assert.equal(await page.$('.failed:not([hidden])'), null, 'it goes on');
    await page.click('#new');
    await ask(page, '!cut');
    assert.match(await text(page, '.failed'), /server stopped/, 'an end in order, but too early');
    await ask(page, '!error', 2);
    assert.match(await page.$eval('.message:last-child .failed', (e) => e.textContent), /the device is gone/);
    return page;
  },

  async 'nothing of a hostile text runs, loads or leaves its place'() {
    const page = await visit();
    await ready(page);
    const asked = [];
    page.on('request', (r) => asked.push(r.url()));
    await ask(page, '!hostile');
    await page.evaluate(() => { document.querySelector('details').open = true; });
    const said = (await answers(page))[0];
    for (const part of ['<script>window.ran = 1', '<img src=x onerror', '<iframe srcdoc', '<meta http-equiv', '<object data']) assert.ok(said.includes(part), `${part} is shown`);
    assert.equal(await page.evaluate(() => window.ran), undefined);
    assert.deepEqual(await page.$$eval('#log script, #log img, #log iframe, #log object, #log svg, #log style, #log meta, #log h1, #log b', (all) => all.map((e) => e.outerHTML)), []);
    const links = await page.$$eval('#log a', (all) => all.map((a) => a.href));
    assert.ok(links.length > 0 && links.every((link) => /^https?:/.test(link)), links.join());
    assert.deepEqual(asked.filter((url) => !url.endsWith('/v1/chat/completions')), []);
    for (const token of (await page.$$('.message.assistant .token')).slice(0, 8)) await token.hover();
    assert.equal(await page.$('#alternatives b b'), null);
    await ask(page, '<img src=x onerror="window.ran = 20"><script>window.ran = 21</script>', 2);
    assert.equal(await page.evaluate(() => window.ran), undefined);
    assert.equal(await page.$('.message.user img'), null);
    await page.reload();
    await ready(page);
    assert.equal(await page.evaluate(() => window.ran), undefined);
    await page.click('[aria-controls=talks]');
    const script = await page.evaluate(() => {
      const refused = [];
      try { document.body.innerHTML = '<p>'; } catch (e) { refused.push('innerHTML'); }
      const s = document.createElement('script');
      try { s.textContent = 'window.ran = 30'; document.body.append(s); } catch (e) { refused.push('script'); }
      return [refused.length, window.ran];
    });
    assert.ok(script[0] >= 1 && script[1] == null, `the policy stands behind it: ${script}`);
    page.complaints = page.complaints.filter((c) => !/Content Security|TrustedHTML|TrustedScript|violates|400/.test(c));
    return page;
  },

  async 'reasoning is folded'() {
    const page = await visit();
    await ready(page);
    await ask(page, '!think');
    assert.equal(await page.$eval('details.reasoning', (e) => e.open), false);
    assert.equal(await text(page, 'details.reasoning .text'), 'Let me think');
    assert.deepEqual(await answers(page), ['Four.']);
    await page.click('summary');
    assert.equal(await page.$eval('details.reasoning', (e) => e.open), true);
    await ask(page, '!think', 2);
    assert.equal((await last(page)).messages[1].reasoning, 'Let me think');
    return page;
  },

  async 'Markdown becomes elements, and code is copied'() {
    const page = await visit();
    await ready(page);
    await ask(page, '!markdown');
    const within = (selector) => page.$eval(`.message.assistant .text:not(.plain) ${selector}`, (e) => e.textContent);
    assert.equal(await within('h4'), 'Title');
    assert.equal(await within('strong'), 'bold');
    assert.equal(await within('em'), 'thin');
    assert.equal(await within('p code'), 'code');
    assert.equal(await within('ol > li:nth-child(2) li:nth-child(2)'), 'more');
    assert.equal(await within('ol > li:nth-child(3)'), 'three');
    assert.equal(await within('blockquote'), 'said by\nanother');
    assert.equal(await within('pre code'), 'func main() {\n\tfmt.Println("<b>")\n}\n');
    assert.equal(await within('td:nth-child(2)'), '2');
    assert.match(await within('p:last-child'), /unclosed \*\*bold and `code/);
    assert.equal(await within('p a'), 'a link');
    await page.evaluate(() => { navigator.clipboard.writeText = async (t) => { window.copied = t; }; });
    await page.click('.code button');
    assert.match(await page.evaluate(() => window.copied), /^func main/);
    await picture(page, 'markdown');
    return page;
  },

  async 'long answers stay smooth'() {
    const page = await visit();
    await ready(page);
    const began = Date.now();
    await page.evaluate(() => { window.long = []; new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => e.duration))).observe({ entryTypes: ['longtask'] }); });
    await send(page, '!long');
    await ended(page, 1, 90000);
    const took = Date.now() - began;
    const longest = Math.max(0, ...await page.evaluate(() => window.long));
    console.log(`  400 kB in 35,000 tokens: ${took} ms, the longest task ${longest.toFixed(0)} ms`);
    assert.ok((await answers(page))[0].length > 350000);
    assert.ok(longest < 5000, 'nothing takes long at once');
    return page;
  },

  async 'the graph: pan, zoom, a click on a dispatch'() {
    const page = await visit();
    await ready(page);
    await ask(page, 'Tell me a story about a fox.');
    await page.click('[aria-controls=graph]');
    await page.waitForSelector('.frame svg', { timeout: 60000 });
    await new Promise((r) => setTimeout(r, 200));
    const boxes = await page.$$('.box.chooses');
    await boxes[3].click();
    const detail = await text(page, '#detail');
    for (const part of ['computes', 'grid', 'threadgroups', 'threads', 'predicted', 'rules', 'Buffers', 'cache_k']) assert.ok(detail.includes(part), `${part}: ${detail}`);
    await picture(page, 'graph');
    const viewBox = () => page.$eval('.frame svg', (e) => e.getAttribute('viewBox').split(' ').map(Number));
    const before = await viewBox();
    const frame = await (await page.$('.frame')).boundingBox();
    await page.mouse.move(frame.x + 40, frame.y + 200);
    await page.mouse.wheel({ deltaY: -300 });
    await page.waitForFunction((w) => Number(document.querySelector('.frame svg').getAttribute('viewBox').split(' ')[2]) < w, {}, before[2]);
    const zoomed = await viewBox();
    await page.mouse.down();
    await page.mouse.move(frame.x + 90, frame.y + 140, { steps: 4 });
    await page.mouse.up();
    const moved = await viewBox();
    assert.ok(moved[0] < zoomed[0] && moved[1] > zoomed[1], 'it follows the pointer');
    await page.click('#stage-fused');
    await page.waitForSelector('#stage-fused[aria-selected=true]');
    await page.evaluate(() => [...document.querySelectorAll('.box.chooses')].find((b) => b.textContent.includes('head_norm_rope')).dispatchEvent(new MouseEvent('click')));
    assert.match(await text(page, '.rules'), /kv_write/);
    await page.click('#stage-schedule');
    await page.click('.launches li:nth-child(6) button');
    assert.match(await text(page, '.dispatch h3'), /^5 /);
    await picture(page, 'schedule');
    await page.select('[name=target]', 'metal');
    await page.select('[name=phase]', 'prefill');
    await page.waitForFunction(() => document.querySelector('#detail')?.textContent.includes('prefill step on metal'), { timeout: 60000 });
    await page.$eval('[name=chip]', (e) => { e.value = 'm0'; e.dispatchEvent(new Event('change', { bubbles: true })); });
    await page.waitForFunction(() => document.querySelector('#drawing .failed')?.textContent.includes('want one of'));
    page.complaints = page.complaints.filter((c) => !c.includes('400'));
    return page;
  },

  async 'conversations: several, deleted, exported, imported, cleared'() {
    const page = await visit();
    await ready(page);
    await ask(page, '!think');
    await page.click('#new');
    await ask(page, '!rtl');
    await page.click('[aria-controls=talks]');
    assert.deepEqual(await page.$$eval('#list .open', (all) => all.map((e) => e.textContent)), ['!rtl', '!think']);
    await (await page.$$('#list .open'))[1].click();
    assert.deepEqual(await answers(page), ['Four.']);
    const file = await page.evaluate(() => new Promise((resolve) => {
      const create = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blob.text().then(resolve); return create(blob); };
      document.getElementById('export').click();
    }));
    assert.deepEqual(JSON.parse(file), { messages: [{ role: 'user', content: '!think' }, { role: 'assistant', content: 'Four.', reasoning: 'Let me think' }] });
    const load = (name, content) => page.$eval('#file', (e, name, content) => {
      const data = new DataTransfer();
      data.items.add(new File([content], name));
      e.files = data.files;
      e.dispatchEvent(new Event('change'));
    }, name, content);
    await load('talk.json', '{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"<b>hi</b>"},{"role":"assistant","content":"ho"}]}');
    await page.waitForFunction(() => document.querySelector('.message.user .text').textContent === '<b>hi</b>');
    assert.equal(await page.$eval('[name=system]', (e) => e.value), 'Be kind.');
    await load('bad.json', '{"a":1}');
    await page.waitForFunction(() => document.getElementById('notice').textContent.includes('bad.json'));
    await picture(page, 'conversations');
    await page.click('#list [aria-label^=Delete]');
    assert.equal((await page.$$('#list .open')).length, 2);
    await page.click('#clear');
    await page.click('#clear');
    assert.deepEqual(await page.$$eval('#list .open', (all) => all.map((e) => e.textContent)), ['Empty conversation']);
    assert.equal(await page.evaluate(() => localStorage.getItem('smelt.conversations')), null);
    return page;
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  if (only && !new RegExp(only).test(name)) continue;
  const began = Date.now();
  try {
    const page = await test();
    assert.deepEqual(page.complaints, [], 'the browser complains');
    await page.browserContext().close();
    console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}\n${e.stack}`);
  }
}
await browser.close();
console.log(failed ? `${failed} failed` : 'all passed');
process.exit(failed ? 1 : 0);
