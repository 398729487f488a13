"""Data of your own: from whatever people have to splits that any model trains on."""
