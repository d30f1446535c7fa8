"""Push the built site to its branch: what `make publish` runs.

The branch holds one commit, the site as built, and no history: the pages can be built again from the sources they name.
GitHub Pages serves it when its settings say "deploy from a branch"; Colab opens the notebooks in it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from book_digest import ROOT
from book_launch import SITE_BRANCH, address


def publish(site: Path, root: Path, remote: str = "origin", branch: str = SITE_BRANCH) -> str:
    """Push all files of the site as the only commit of the branch; the commit's name.

    The working tree and the index of the repository stay as they are.
    """
    def git(*command, **settings):
        done = subprocess.run(["git", *command], cwd=site, env=os.environ | settings, text=True, check=True,
                              stdout=subprocess.PIPE)
        return done.stdout.strip()

    (site / ".nojekyll").touch()  # else Pages leaves out folders such as _static
    folder = subprocess.run(["git", "rev-parse", "--absolute-git-dir"], cwd=root, text=True, check=True,
                            stdout=subprocess.PIPE).stdout.strip()
    name, mail, date, commit = git("--git-dir", folder, "log", "-1", "--format=%cn%n%ce%n%cI%n%h").split("\n")
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", name), ("EMAIL", mail), ("DATE", date))}
    with tempfile.TemporaryDirectory() as scratch:
        here = {"GIT_DIR": folder, "GIT_WORK_TREE": str(site), "GIT_INDEX_FILE": str(Path(scratch) / "index")}
        git("add", "--all", "--force", ".", **here)
        tree = git("write-tree", **here)
        made = git("commit-tree", tree, "-m", f"The site of {commit}", **here, **who)
        git("push", "--quiet", "--force", remote, f"{made}:refs/heads/{branch}", **here)
    return made


def main() -> int:
    if address(os.environ) is None:
        print("set MPTLML_REPOSITORY to https://github.com/OWNER/NAME first: the pages link to it", file=sys.stderr)
        return 1
    try:
        print(f"pushed {publish(ROOT / '_build' / 'html', ROOT)[:7]} to the branch {SITE_BRANCH}")
    except subprocess.CalledProcessError as error:
        print(f"not published: {' '.join(error.cmd[:2])} failed, see above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
