"""`compare.html`: a comparison as one page to look at: verdict, differences, slices, and the cases side by side."""
