"""The conditions of a group's status, one file each: what is known -> a judgement.

What belongs here: which facts make a condition true, and the words that tell people why it is not.
Nothing here calls the API or reads the clock; `condition` stamps judgements with a time that is
given to it.
"""
