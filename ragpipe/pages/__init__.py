"""The core of the HTML pages: one file that loads nothing, its data blocks, its list, address and keys, charts as SVG.

`page_file` puts a page together, `data_blocks` packs what it shows, `side_files` puts beside it what is too much for one file,
`page_address` makes links into it. `charts` draws differences and heat maps, `charts_rows` means, shares and limits, `charts_spread` how values lie.
`assets/` has the style (`core.css`) and the script in named pieces, of which a page takes those that it needs:

- `dom.js`: `make(tag, properties, ...children)`, `byId`, `remembered` and `remember` (localStorage, which may refuse).
- `folds.js`: `lightenFolds(root)`: what is folded comes into the page when it is opened; `followSectionLinks`.
- `blocks.js`: `DataBlocks`: a data block by its name, decoded when asked for; `columnsOf`: its columns as typed arrays.
- `address.js`: `readAddress`, `writeAddress`, `Address`: the state of the page as the fragment of its address.
- `keys.js`: `Keys`: single keys with their list, disabled in input fields, with an off-switch.
- `list.js`: `VirtualList`: a listbox of any length, of which only the visible rows exist.
- `filters.js`: `matchingRows`, `countsWithout`: the rows that pass, and how many each filter keeps out.
- `share.js`: `copyLink`, `saveFile`, `csvText`.
- `list_page.js`: `ListPage`: a page of cases over all of these, `startListPage`; `figure`: a number as texts show it.
- `word_diff.js`: `jsdiff.diffWordsWithSpace(before, after, options)`, of jsdiff 9.0.0.
- `changes.js`: `changedParts(before, after)`: a text with the words that are new and gone.

Every piece declares functions and classes in one scope. No script writes markup: texts become `textContent`.
"""
