"""The fast path of a step. Removing this folder changes no journal and no answer, only time.

Most turns are alike: the one step that a run waited for has returned a number or a text, and the code asks for the next
step or comes to its end. Such a turn is made here with few calls. Whatever else happens is left to the general path,
before or after the result was delivered. The interface is `engine.fast_path.FastPath`; its switch is there too.
"""

from perdure.fastlane.lane import Lane as Lane
