"""A GPT trained in every parallel way, beside the same training on one device."""
