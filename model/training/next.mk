# The next trainings, each with one command, from the repository's root:
#
#     make -f model/training/next.mk en-fr-next     (or fr-en-next)
#
# What is missing of the derived data is made first. The same command goes on after a stop. START is the checkpoint to begin with.

PYTHON ?= .venv/bin/python
CORPUS ?= ../shared/data/train.en-fr.tsv.gz
PROCESSES ?= 2
LEARN_FROM ?= 100000
SCORED = canada-digital react-docs huggingface-course rust-book monero-site bitcoin-org literature-pd opensource-guide \
	african-storybooks
DERIVED = runs/names.en-fr.tsv.gz runs/rare.en-fr.tsv.gz runs/kept.en-fr.tsv.gz runs/variations.en-fr.tsv.gz \
	runs/pronouns.en-fr.tsv.gz

.PHONY: en-fr-next fr-en-next
.DELETE_ON_ERROR:

en-fr-next fr-en-next: %-next: runs/links.%/made runs/scores/train.en-fr.scores.gz
	.venv/bin/torchrun --standalone --nproc-per-node $(PROCESSES) -m service train model/training/$@.toml \
		--start-from $(or $(START),model/pretrained/$*)

runs/links.%/made: $(DERIVED) runs/noise.%.tsv.gz
	$(PYTHON) -m model.training.aligner model/training/$*-next.toml --gold tests/data/alignment_gold.jsonl \
		--learn-from $(LEARN_FROM)
	touch $@

runs/scores/train.en-fr.scores.gz: $(CORPUS) | runs
	$(PYTHON) -m model.training.scores model/pretrained/en-fr $(CORPUS) runs/scores --sources $(SCORED)

runs/names.en-fr.tsv.gz runs/rare.en-fr.tsv.gz runs/variations.en-fr.tsv.gz: runs/%.en-fr.tsv.gz: $(CORPUS) | runs
	$(PYTHON) -m model.training.$* $(CORPUS) $@

runs/kept.en-fr.tsv.gz: $(CORPUS) | runs
	$(PYTHON) -m model.training.kept $(CORPUS) $@ --sources tatoeba african-storybooks canada-digital react-docs \
		huggingface-course rust-book tldr-pages python-docs django-docs php-manual opensource-guide

runs/pronouns.en-fr.tsv.gz: $(CORPUS) | runs
	$(PYTHON) -m model.training.pronouns $(CORPUS) $@ --sources tatoeba african-storybooks literature-pd canada-digital \
		opensource-guide europarl open-contracting bitcoin-org monero-site react-docs huggingface-course rust-book

runs/noise.en-fr.tsv.gz runs/noise.fr-en.tsv.gz: runs/noise.%.tsv.gz: $(CORPUS) | runs
	$(PYTHON) -m model.training.noise $(CORPUS) $@ --read $(firstword $(subst -, ,$*))

runs:
	mkdir -p $@
