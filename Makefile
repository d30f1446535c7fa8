# make book   the site, in _build/html          make test   everything that is checked
# Both set up their environment first: Python 3.11 and a package registry are all they need.

PYTHON ?= python3.11
JOBS ?= 2
CHAPTERS ?=
CODE ?= all
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN := $(BIN)/python book/_ext

# Two chapters run at a time, so that each gets one thread.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1
# The kernel and the packages of .venv, whatever else is installed.
export JUPYTER_PREFER_ENV_PATH := 1
export JUPYTER_PLATFORM_DIRS := 1
export PYTHONNOUSERSITE := 1
export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
unexport PYTHONPATH
unexport JUPYTER_PATH

.DEFAULT_GOAL := help
.PHONY: help env book execute test pairs lint spell bib toc links newest archive pdf publish clean distclean

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

env: $(READY)  ## set up .venv with the pinned packages

# The mark goes before pip starts and comes back when it is done: an interrupted installation starts again
# from an empty environment, a changed requirement only adds to it. Matplotlib lists its fonts here once, for it
# says so on stderr, which a chapter must not.
$(READY): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11, or say make PYTHON=/path/to/it"; exit 1; }
	@if [ -f $@ ]; then rm $@; else $(PYTHON) -m venv --clear $(VENV); fi
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --requirement requirements.txt
	$(BIN)/python -c "import matplotlib.font_manager"
	@touch $@

execute: $(READY)  ## run the chapters whose inputs changed, two at a time (CHAPTERS="04_convergence" for one)
	@$(RUN)/book_execute.py --jobs $(JOBS) $(CHAPTERS)

book: $(READY)  ## the site in _build/html
	@$(RUN)/book_execute.py --jobs $(JOBS)
	@$(RUN)/book_build.py

test: $(READY)  ## chapters (run once, shared with the book), unit tests, pairs, claims, the built site
	@status=0; \
	{ $(RUN)/book_execute.py --jobs $(JOBS) && $(RUN)/book_build.py; } || status=1; \
	BOOK_EXECUTED=1 $(BIN)/python -m pytest || status=1; \
	exit $$status

pairs: $(READY)  ## write each notebooks/x.md into its twin x.ipynb, without outputs
	@$(BIN)/jupytext --quiet --to ipynb --update notebooks/*.md
	@$(BIN)/nbstripout --keep-id --extra-keys "metadata.language_info cell.metadata.execution" notebooks/*.ipynb

lint: $(READY)  ## ruff over all Python files
	@$(BIN)/ruff check mptlml tests benchmarks book/_ext

spell: $(READY)  ## codespell over all text that git knows
	@git ls-files -z | xargs -0 $(BIN)/codespell

bib: $(READY)  ## put the bibliography in order; every citation has its entry, every entry its citation
	@$(RUN)/book_bib.py

toc: $(READY)  ## every page is in the contents, and every entry exists
	@$(BIN)/python -m pytest -q -k "page_is_in_the_contents" tests/test_book.py

links: $(READY)  ## follow every link that leaves the book, and say which are broken
	@$(RUN)/book_execute.py --jobs $(JOBS)
	@$(BIN)/jupyter-book build --builder linkcheck .

# A copy of what is committed, with its own environment; the pins that it ends with are worth keeping if its tests pass.
newest:  ## make test with the newest versions of everything, in .newest
	rm -rf .newest
	git clone --quiet . .newest
	cd .newest && $(PYTHON) book/_ext/book_newest.py loosen
	$(MAKE) -C .newest env
	cd .newest && $(BIN)/python book/_ext/book_newest.py pin && touch $(READY)
	$(MAKE) -C .newest test

archive: book  ## the book in one zip, to be read offline
	@$(RUN)/book_archive.py

pdf: book  ## the book in print (CODE=none leaves the code cells out); needs a Chromium
	@$(RUN)/book_print.py --code $(CODE)

publish: book  ## push the site to the branch gh-pages (MPTLML_REPOSITORY=https://github.com/OWNER/NAME)
	@$(RUN)/book_publish.py

clean:  ## remove what was built and executed
	rm -rf _build .newest .run-* .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	rm -rf $(VENV) mptlml.egg-info
