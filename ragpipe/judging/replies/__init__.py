"""From the text of a reply to a typed answer: remove the thinking, find the JSON, refuse copies of the material."""
