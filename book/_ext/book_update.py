"""After an edit of a title, a label or a number all pages are written again, for each may show it."""


def _titles(env) -> str:
    """All that pages show of other pages: titles, what labels stand for, and numbers."""
    labels = env.domains["std"].labels
    shared = {name: node.astext() for name, node in env.titles.items()}, env.toc_secnumbers, env.toc_fignumbers
    return repr([*map(sorted, (each.items() for each in shared)), sorted(map(str, labels.items()))])


def _also_written(app, env):
    before, env.book_titles = getattr(env, "book_titles", None), _titles(env)
    return [] if env.book_titles == before else list(env.found_docs)


def setup(app):
    app.connect("env-get-updated", _also_written)  # numbers are known then
    return {"parallel_read_safe": True, "parallel_write_safe": True}
