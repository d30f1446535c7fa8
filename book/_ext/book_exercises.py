"""Solutions as folds, and exercises and proofs without the sections that share an id on every page.

sphinx-exercise and sphinx-proof wrap what they hold in sections without a title. The fold that
sphinx-exercise offers is a script's; sphinx-design's is the browser's own, which a keyboard opens.
"""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx_design.shared import create_component
from sphinx_exercise.nodes import solution_node


def unwrap(app, doctree):
    """Put what stands in a section without a title in the place of the section."""
    for section in list(doctree.findall(nodes.section)):
        if section.first_child_matching_class(nodes.title) is None:
            section["ids"] = []
            section.replace_self(section.children)


class FoldSolutions(SphinxPostTransform):
    """Each solution becomes a closed fold, named "Solution to Exercise 4.1"."""

    default_priority = (
        150  # sphinx-exercise has written the titles; sphinx-design has yet to make its folds
    )
    formats = ("html",)

    def run(self) -> None:
        for solution in list(self.document.findall(solution_node)):
            title, *content = solution.children
            name = nodes.rubric("", title.astext())
            solution.replace_self(
                create_component(
                    "dropdown",
                    children=[name, *content],
                    opened=False,
                    has_title=True,
                    icon=None,
                    chevron=None,
                    container_classes=["sd-mb-3"],
                    title_classes=[],
                    body_classes=[],
                )
            )


def setup(app):
    app.connect("doctree-read", unwrap)
    app.add_post_transform(FoldSolutions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
