"""Fill in the middle: which parts are left out, and how families of models mark them."""
