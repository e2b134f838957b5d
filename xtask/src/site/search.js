// Finds the sections that have all words of the search; those with a word in their heading come first.
'use strict';
(() => {
  const box = document.querySelector('#search'), found = document.querySelector('#found');
  const up = document.body.dataset.up;
  const article = document.querySelector('article');
  const lowered = sections.map(([title, heading, , text]) => [`${title} ${heading}`.toLowerCase(), text.toLowerCase()]);
  box.form.hidden = false;
  box.form.addEventListener('submit', event => event.preventDefault());
  if (matchMedia('(max-width: 800px)').matches) document.querySelector('nav details').open = false;

  const excerpt = (text, word) => {
    const at = Math.max(0, text.toLowerCase().indexOf(word) - 60);
    return (at ? '… ' : '') + text.slice(at, at + 200) + (at + 200 < text.length ? ' …' : '');
  };

  const search = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(word => word);
    found.replaceChildren();
    article.hidden = words.length > 0;
    if (!words.length) return;
    const hits = [];
    lowered.forEach(([head, text], index) => {
      if (words.every(word => head.includes(word) || text.includes(word)))
        hits.push([words.filter(word => head.includes(word)).length, index]);
    });
    hits.sort((one, other) => other[0] - one[0] || one[1] - other[1]);
    for (const [, index] of hits.slice(0, 50)) {
      const [title, heading, url, text] = sections[index];
      const item = document.createElement('li'), link = document.createElement('a'), words_of = document.createElement('p');
      link.href = up + url;
      link.textContent = heading && heading !== title ? `${title}: ${heading}` : title;
      link.addEventListener('click', () => { box.value = ''; search(); });
      words_of.textContent = excerpt(text, words[0]);
      item.append(link, words_of);
      found.append(item);
    }
    if (!hits.length) {
      const item = document.createElement('li');
      item.textContent = 'no section has all of these words';
      found.append(item);
    }
  };
  box.addEventListener('input', search);
  document.addEventListener('keydown', event => {
    if (event.key === '/' && document.activeElement !== box) { event.preventDefault(); box.focus(); }
    if (event.key === 'Escape' && document.activeElement === box) { box.value = ''; search(); }
  });
})();
