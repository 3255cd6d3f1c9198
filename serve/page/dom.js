// make returns an element with attributes and children. Strings become text nodes, never markup.
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// draw is make for SVG elements.
export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function button(text, onclick, attributes = {}) {
  return make('button', { type: 'button', onclick, ...attributes }, text);
}

// copyButton returns a button that copies the result of text().
export function copyButton(text) {
  const b = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text());
      b.textContent = 'Copied';
    } catch {
      b.textContent = 'Not allowed';
    }
    setTimeout(() => { b.textContent = 'Copy'; }, 1500);
  });
  return b;
}
