"""From a linear program to the text of a target; decides nothing."""
