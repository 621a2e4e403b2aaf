"""The library's plugins, one file per family; :mod:`koordcore.framework.registry` lists them."""
