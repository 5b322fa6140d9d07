"""The core of the HTML pages: one file that loads nothing, its data blocks, its list, address and keys, charts as SVG."""
